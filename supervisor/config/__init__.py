"""The configuration of a server: what an operator can set, and how it is read and checked."""
