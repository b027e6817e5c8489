"""The kernels of attention over pages, and how its work is cut into tiles."""
