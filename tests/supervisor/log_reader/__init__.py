"""Tests of `supervisor logs`."""
