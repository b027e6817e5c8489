"""Tests over whole servers: real processes, real sockets."""
