"""The endpoints of the HTTP server."""
