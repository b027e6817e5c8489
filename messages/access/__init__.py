"""Who may use a server: API keys and the tenants that they belong to."""
