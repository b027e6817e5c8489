"""Tests of the models that a gateway serves."""
