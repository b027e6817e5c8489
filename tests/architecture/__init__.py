"""Tests about the house itself: who imports whom, how large rooms are, whether the maps are true."""
