"""ZeroMQ: the socket that client libraries talk to, its clients and their streams."""
