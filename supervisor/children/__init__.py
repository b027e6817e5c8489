"""Child processes: how they are started, adopted and ended; their records, spares and causes of death."""
