"""Gateways whose model thinks before it answers."""
