"""Our kernels against references, as plain functions that also run without pytest."""
