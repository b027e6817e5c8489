"""A request and its sequences: its order, its visible tokens, its readers; refusals and the quarantine."""
