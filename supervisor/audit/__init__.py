"""The audit log, as commands of operators write it."""
