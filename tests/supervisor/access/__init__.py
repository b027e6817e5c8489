"""Tests of the commands about API keys."""
