"""Endpoints that are the operator's: tenants, caches, drains and cordons."""
