"""What the host tier's decisions are made of, beside `planning/host_tier.py`."""
