"""The cache of answers."""
