"""Plans the sequences that decode together, all of their rows at once."""
