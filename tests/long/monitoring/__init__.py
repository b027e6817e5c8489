"""Tests of what operators get for Prometheus, Alertmanager and Grafana, with the real programs."""
