"""Commands of the load tools about decisions of the scheduler."""
