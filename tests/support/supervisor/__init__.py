"""A supervisor for tests: trees of stub actors."""
