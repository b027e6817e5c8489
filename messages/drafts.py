"""What schedulers and the speculation actor say to each other. A late answer is useless and dropped; no answer is no harm."""

from __future__ import annotations

from messages.wire.arrays import Int32s, Int64s, total
from messages.wire.message import Message


class Tails(Message, frozen=True):
    """New tokens of the sequences that want drafts, and how the last drafts fared.

    Row i: sequence `sequences[i]` (a number of the scheduler's) got `counts[i]` tokens, the first at position `starts[i]`
    (0: a new sequence, its whole prompt follows). `drafted[i]` and `accepted[i]` judge the drafts verified since the last
    report. A row with count -1 says that the sequence has ended.
    """

    sequences: Int64s
    starts: Int32s
    counts: Int32s
    ids: Int32s
    drafted: Int32s
    accepted: Int32s

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = len(self.sequences)
        for name in ("starts", "counts", "drafted", "accepted"):
            if len(getattr(self, name)) != rows:
                raise ValueError(f"{name}: expected {rows} rows as in sequences, got {len(getattr(self, name))}")
        if int(self.counts.clip(min=0).sum()) != len(self.ids):
            raise ValueError(f"ids: expected {int(self.counts.clip(min=0).sum())} ids, got {len(self.ids)}")


class Drafts(Message, frozen=True):
    """Proposed continuations: row i proposes `counts[i]` ids for positions `starts[i]`, +1, ... of `sequences[i]`."""

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
