"""Which replica gets a sequence: the loads that count, and the strategies. All of it is pure."""
