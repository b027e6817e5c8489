"""Steps that run beside those in flight, so that an urgent prompt does not wait for them."""
