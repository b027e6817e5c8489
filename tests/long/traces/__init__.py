"""Traces of requests while processes are killed."""
