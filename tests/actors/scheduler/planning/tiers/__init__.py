"""Tests of what the host tier's decisions are made of."""
