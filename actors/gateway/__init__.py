"""The gateway actor: serves clients over HTTP and ZeroMQ. Owns their requests: text, journal, and the one ending of each."""
