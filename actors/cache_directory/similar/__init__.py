"""Answers that are kept for requests with nearly the same question: vectors, nearest neighbours, a file."""
