"""Answers that are kept for equal requests, as gateways and the cache directory hold them: bounded in bytes, by frequency."""
