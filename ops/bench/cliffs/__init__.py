"""Workloads on which engines show cliffs: a very long prompt, long prompts beside short requests, a burst of prompts."""
