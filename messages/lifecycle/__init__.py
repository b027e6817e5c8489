"""The life of a process: what it reads at its start, its messages with the supervisor, and those about the whole tree."""
