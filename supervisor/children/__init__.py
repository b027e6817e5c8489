"""Child processes: spawning, records, spares, exit causes, orphans, and files that outlive the supervisor."""
