"""Sockets that a service manager has opened for the server."""
