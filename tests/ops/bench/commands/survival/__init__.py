"""Tests of the load tools that harm servers."""
