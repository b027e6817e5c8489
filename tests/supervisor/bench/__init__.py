"""Tests of `supervisor bench`."""
