"""Tests of the source itself: imports, sizes of files and functions, docstrings, generated tables."""
