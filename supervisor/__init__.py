"""The supervisor, the parent of all processes: starts the tree, watches it, restarts children that die, and shuts it down."""
