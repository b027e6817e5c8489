"""HTTPS: certificates that are read again when their files change, and the handshake of each connection."""
