"""Tests of pages that need a CUDA device."""
