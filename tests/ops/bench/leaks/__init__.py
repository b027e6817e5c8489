"""Tests of the search for leaks."""
