"""TLS of the HTTP server."""
