"""The format of /v1/responses: its object, its events, and the items of its output."""
