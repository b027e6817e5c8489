"""The kernels that read and write pages of keys and values."""
