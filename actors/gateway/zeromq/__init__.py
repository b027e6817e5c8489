"""ZeroMQ: the public socket of the client library, its clients and their streams."""
