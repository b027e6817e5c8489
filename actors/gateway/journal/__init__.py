"""The journal of one gateway: checksummed records on a writer thread, replayed by the next incarnation."""
