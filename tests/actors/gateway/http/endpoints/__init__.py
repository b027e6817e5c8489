"""What web pages may do at the HTTP server."""
