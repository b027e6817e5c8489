"""Tests of the page at /: what it is told of the server, and its files."""
