"""The Triton kernels of the CUDA worker, one file each; imported only where a CUDA device (and so Triton) is."""
