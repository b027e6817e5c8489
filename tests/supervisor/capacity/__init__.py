"""Tests of what `supervisor plan` says."""
