"""Stand-ins for a GPU that copies pages beside its steps."""
