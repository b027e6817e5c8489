"""Mutated input for real servers."""
