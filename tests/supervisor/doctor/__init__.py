"""Tests of `supervisor doctor`."""
