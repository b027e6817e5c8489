"""Faults of replicas: cordons, deaths, and a fallback model meanwhile."""
