"""JSON schemas as answers follow them: narrower than what clients send, so that the answers of small models end."""
