"""Tests of the kernels of CPUs."""
