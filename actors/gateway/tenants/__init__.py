"""Tenants at a gateway: what their requests may use, asked of the accounts before they are accepted, and told to them after."""
