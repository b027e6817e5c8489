"""Tests of API keys and of their file."""
