"""The rolling restart: the same server with new settings, each process replaced by one that runs the program on disk."""
