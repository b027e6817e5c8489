"""The CPU back end: operations and attention by kernels that are compiled at the start."""
