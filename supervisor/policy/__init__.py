"""Pure decisions of the supervisor: child specifications, restarts, liveness, spawn retries, draining."""
