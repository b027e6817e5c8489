"""Tests of how gateways ask for API keys."""
