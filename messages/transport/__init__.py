"""Mailboxes: how messages travel between actors, over ZeroMQ and in memory, with credits against overflow."""
