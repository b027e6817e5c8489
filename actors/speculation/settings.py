"""Speculation's section of the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec


class SpeculationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How drafts are made."""

    longest_match: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4  # tokens that must repeat, at most
    shortest_match: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2  # tokens that must repeat, at least
    max_draft: Annotated[int, msgspec.Meta(ge=1, le=64)] = 16  # tokens proposed at once; a step verifies a part of them
    # sequences whose tokens are kept; then the oldest is forgotten
    max_sequences: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1024
