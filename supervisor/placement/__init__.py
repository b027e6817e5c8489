"""Placement: which replicas and ranks run on which devices, from the hardware and the model's size."""
