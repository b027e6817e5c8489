"""Tests of the long run of tenants."""
