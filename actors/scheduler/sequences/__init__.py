"""Sequences as their scheduler sees them: their state, their queues, and the policies that order them."""
