"""Servers with tenants, for tests."""
