"""The accounts: what the tenants of a server use, counted at one place for all gateways."""
