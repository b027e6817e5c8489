"""Pages of the KV memory: hashes, ledger, eviction. Pure, and shared by scheduler, gateway and cache directory."""
