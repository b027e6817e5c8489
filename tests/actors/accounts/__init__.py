"""Tests of the accounts of tenants."""
