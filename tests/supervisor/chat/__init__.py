"""supervisor chat and supervisor run."""
