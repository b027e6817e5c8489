"""Tests of the tools in ops/."""
