"""Other people's clients: what they send, and their suites against a running server."""
