"""Prometheus and Alertmanager for tests, and what the rules say."""
