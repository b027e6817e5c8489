"""Messages between schedulers and speculation. A late or lost answer does no harm: the scheduler plans without drafts."""

from __future__ import annotations

from messages.wire.arrays import EMPTY_I32, Int32s, Int64s, total
from messages.wire.message import Message


class Tails(Message, frozen=True, kw_only=True):
    """New tokens of the sequences that want drafts, and how many of the last draft tokens were accepted.

    Row i: sequence `sequences[i]` (the scheduler's number) has `counts[i]` new tokens, the first one at position `starts[i]`;
    start 0 means a new sequence, with its whole prompt. Since the last report `accepted[i]` draft tokens of it were accepted. A
    count of -1 means that the sequence has ended.

    `drafted[i]`, how many were verified, is sent for the speculation of release 0.2.0, which learns from it. Nothing of this
    release reads it: the release after this one need not send it, and the one after that can remove it.
    """

    sequences: Int64s
    starts: Int32s
    counts: Int32s
    ids: Int32s
    drafted: Int32s = EMPTY_I32
    accepted: Int32s

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = len(self.sequences)
        for name in ("starts", "counts", "accepted"):
            if len(getattr(self, name)) != rows:
                raise ValueError(f"{name}: expected {rows} rows as in sequences, got {len(getattr(self, name))}")
        if (self.accepted < 0).any():
            raise ValueError(f"accepted: expected 0 or more, got {self.accepted.tolist()}")
        if int(self.counts.clip(min=0).sum()) != len(self.ids):
            raise ValueError(f"ids: expected {int(self.counts.clip(min=0).sum())} ids, got {len(self.ids)}")


class Drafts(Message, frozen=True):
    """Draft tokens: row i has `counts[i]` ids for positions `starts[i]`, `starts[i]` + 1, ... of sequence `sequences[i]`."""

    sequences: Int64s
    starts: Int32s
    counts: Int32s
    ids: Int32s

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = len(self.sequences)
        for name in ("starts", "counts"):
            if len(getattr(self, name)) != rows:
                raise ValueError(f"{name}: expected {rows} rows as in sequences, got {len(getattr(self, name))}")
        if total(self.counts) != len(self.ids):
            raise ValueError(f"ids: expected {total(self.counts)} ids, got {len(self.ids)}")
