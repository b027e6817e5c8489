"""The faults of a simulated run."""
