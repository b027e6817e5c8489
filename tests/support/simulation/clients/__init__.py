"""Clients of a simulated server: what they ask for, how they ask, and the history of what they have seen."""
