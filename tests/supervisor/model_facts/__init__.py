"""Tests of what processes are told of the models that a server serves."""
