"""Answers of similar questions: which question a request is, its vector, and what the cache directory has kept for it."""
