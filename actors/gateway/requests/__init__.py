"""A request and its sequences: what it asks for, its visible tokens, its readers, and why one is refused."""
