"""Tests that kill and freeze processes of a running server."""
