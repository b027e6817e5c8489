"""Submits requests to replicas, and again when a replica loses them."""
