"""The product where nothing but its wheel was installed."""
