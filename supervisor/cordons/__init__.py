"""Replicas that an operator has taken out of use: who owns that fact, and the commands."""
