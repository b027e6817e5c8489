"""Dashboards for Grafana, drawn from what they show."""
