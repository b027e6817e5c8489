"""Tests of the limits of tenants at a gateway."""
