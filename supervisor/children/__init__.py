"""Child processes: spawning, records, spares, exit causes, orphans and the files that outlive them."""
