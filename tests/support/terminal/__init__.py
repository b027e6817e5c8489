"""A terminal for tests of what people type into."""
