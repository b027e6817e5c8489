"""Workers for tests: a small scheduler, a stage, checks of kernels and attention."""
