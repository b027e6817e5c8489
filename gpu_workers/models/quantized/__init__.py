"""Reads the weights of quantised checkpoints."""
