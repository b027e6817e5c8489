"""How fast the cache directory is, beside a bare ZeroMQ round trip of the same two processes."""
