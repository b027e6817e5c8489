"""What a gateway does when more is asked for than the server can compute: bounds, shares of callers, degradation."""
