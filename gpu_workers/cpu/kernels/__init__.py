"""Compute kernels for CPU cores, compiled for the processor at hand when a worker starts (llvmlite); no compiler is needed."""
