"""The rows of plans. Pure."""

from __future__ import annotations

import msgspec

from actors.scheduler.sequences.sequence import Sequence

NO_DRAFTS: list[int] = []  # of most rows; nobody writes to the drafts of a row


class ForcedTokens(list[int]):
    """Drafts from a grammar that allows no other tokens; they do not come from speculation."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of a plan, kept until its result has come."""

    sequence: Sequence
    stay: int  # `sequence.stay` when the row was planned
    slot: int  # `sequence.slot` when the row was planned
    start: int  # first position
    count: int  # positions
    samples: bool
    drafts: list[int]  # ids
    n_copied: int = 0  # tokens before `start` that this plan copies


RowEnd = tuple[Row, int]  # a row, and the number of positions of its sequence that are complete once its step has run
