"""Pages that move between replicas of one host."""
