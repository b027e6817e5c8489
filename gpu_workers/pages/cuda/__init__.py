"""Pages of a GPU on their way between it and pinned memory of the host."""
