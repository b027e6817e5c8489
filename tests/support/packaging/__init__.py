"""Installations of the product for tests."""
