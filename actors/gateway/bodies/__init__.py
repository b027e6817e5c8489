"""The JSON bodies of requests, over HTTP and ZeroMQ: their fields, what is wrong with one, and what one asks for."""
