"""Captured steps: CUDA graphs on GPUs, recorded programs of kernel calls on CPUs."""
