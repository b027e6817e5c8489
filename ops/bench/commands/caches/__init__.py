"""Commands of the load tools about caches."""
