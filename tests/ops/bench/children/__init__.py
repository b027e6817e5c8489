"""Tests of the processes that load tools start."""
