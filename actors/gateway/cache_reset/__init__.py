"""What an operator asks of the caches of the whole server: which content they forget."""
