"""What watching costs: the ratios, and a short real measurement."""
