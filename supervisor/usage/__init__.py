"""What tenants use, as commands show it."""
