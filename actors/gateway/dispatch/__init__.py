"""Runs accepted requests: submits them to replicas, records and publishes their tokens, and recovers after a death."""
