"""The other gateways of this server: which of them owns a request, and how every door asks them."""
