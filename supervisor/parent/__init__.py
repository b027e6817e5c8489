"""The parent of the supervisor: it replaces a supervisor that died or froze, and keeps what the next one needs."""
