"""Processes that do not run, or that run without doing anything."""
