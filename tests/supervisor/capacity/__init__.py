"""Tests of `supervisor/capacity`."""
