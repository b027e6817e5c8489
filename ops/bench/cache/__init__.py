"""Hit rates and speed of eviction policies: traces, made up or recorded, replayed through the page ledger."""
