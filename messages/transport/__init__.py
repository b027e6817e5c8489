"""Mailboxes: how messages travel between actors, over ZeroMQ or in memory, with credit-based flow control."""
