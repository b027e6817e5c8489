"""API keys, as an operator makes and ends them."""
