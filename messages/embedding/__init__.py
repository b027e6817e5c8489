"""Messages between gateways and the embedder."""
