"""Tests of the process that reads the GPUs."""
