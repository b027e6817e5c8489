"""Limits that messages and settings share. Imports no numpy, because the configuration is read without it."""

from __future__ import annotations

from typing import Annotated

import msgspec

MAX_SEQUENCES = 65_536  # that one message lists, and slots of one gang
MAX_LEASE_STEPS = 256  # of one plan
MAX_GROUP_TOKENS = 65_536  # of a sequence that are sent together

# terms that a tenant may have too
Priority = Annotated[int, msgspec.Meta(ge=-100, le=100)]
Weight = Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)]
PageShare = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
