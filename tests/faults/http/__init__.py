"""Faults under HTTP clients: connections that go on, streams that are read on, keys that hold."""
