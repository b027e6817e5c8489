"""Tests of the rolling restart."""
