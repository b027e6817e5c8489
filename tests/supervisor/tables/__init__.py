"""Tests of `supervisor/tables`."""
