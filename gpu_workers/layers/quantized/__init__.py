"""Weights that are small numbers with scales."""
