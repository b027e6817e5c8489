"""The journal of one gateway: records in SQLite on a writer thread, replayed by the next incarnation."""
