"""The CUDA back end: operations, attention and sums over ranks by own kernels."""
