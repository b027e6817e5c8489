"""Tests of the load tools about caches."""
