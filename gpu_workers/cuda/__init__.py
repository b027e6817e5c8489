"""The CUDA back end: operations and attention with our own Triton kernels, sums over ranks in symmetric memory."""
