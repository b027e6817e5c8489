"""Simulated ranks whose pages are copied to and from the host tier beside the steps, as on a GPU."""
