"""The JSON bodies of requests."""
