"""Tests of completion and of printed configurations."""
