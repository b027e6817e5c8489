"""Tests of what answers look like in each API."""
