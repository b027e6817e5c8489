"""Tests of tables that commands print."""
