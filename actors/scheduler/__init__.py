"""The scheduler of one replica: it decides which sequences run, owns pages and steps, and never waits for another actor."""
