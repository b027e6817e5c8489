"""Checks and measurements that need a CUDA device."""
