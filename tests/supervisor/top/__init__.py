"""Tests of `supervisor top`."""
