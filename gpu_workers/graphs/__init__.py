"""Captured steps: CUDA graphs, and programs of native calls on a CPU."""
