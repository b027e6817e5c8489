"""The fallback model: what an operator can set, what a start finds out of it, and how its processes differ from the others."""
