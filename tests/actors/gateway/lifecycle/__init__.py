"""Requests from their acceptance to their end."""
