"""What answers look like in each API: OpenAI's, this server's own, and those of other servers. Pure."""
