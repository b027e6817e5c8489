"""The CPU back end: operations and attention with kernels that are compiled when a worker starts."""
