"""Seeds of the simulation about caches: tiers, moves between replicas, sizes, resets."""
