"""The parent of all processes: starts the tree, watches it, restarts what dies, and ends it in order."""
