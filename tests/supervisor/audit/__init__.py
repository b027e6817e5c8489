"""Lines of the audit log that the supervisor writes."""
