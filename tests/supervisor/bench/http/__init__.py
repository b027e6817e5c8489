"""Tests of the HTTP clients of the load tools."""
