"""Inputs and expected results for tests of kernels."""
