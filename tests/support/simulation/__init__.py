"""A simulation of a whole server: the real actors and the real supervisor in virtual time, replayed from a seed."""
