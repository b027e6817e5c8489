"""Limits that messages and settings share. Imports nothing, because the configuration is read without numpy."""

from __future__ import annotations

MAX_SEQUENCES = 65_536  # that one message lists, and slots of one gang
MAX_LEASE_STEPS = 256  # of one plan
MAX_GROUP_TOKENS = 65_536  # of a sequence that are sent together
