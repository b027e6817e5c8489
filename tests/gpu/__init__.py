"""Tests that need a CUDA device; kernels alone also run in Triton's interpreter."""
