"""Who is let in: API keys, checked before anything of a request is read."""
