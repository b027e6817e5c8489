"""What gateways of one server ask of each other."""
