"""Tests of the fields of HTTP bodies."""
