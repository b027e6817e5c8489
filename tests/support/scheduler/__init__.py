"""A scheduler for tests, or parts of it."""
