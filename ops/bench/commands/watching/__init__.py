"""Commands that measure what it costs to watch a server."""
