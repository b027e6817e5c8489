"""The log file of a server, to which all of its processes write."""
