"""The other gateways of this server: which of them owns a request, and how the servers for HTTP and ZeroMQ ask them."""
