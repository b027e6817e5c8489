"""Tests of the log file."""
