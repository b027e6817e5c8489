"""Scheduling policies on generated traces: the real planner, a device that is a formula, virtual time."""
