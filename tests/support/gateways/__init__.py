"""Several gateways, for tests."""
