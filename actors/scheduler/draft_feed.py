"""What speculation is told next: the new tokens of sequences that want drafts, and how their drafts fared. Pure."""

from __future__ import annotations

from actors.scheduler.sequence import Sequence
from messages.drafts import Tails
from messages.wire.arrays import int32s, int64s


class DraftFeed:
    """Gathers until `take` makes the next `Tails`."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}  # sequence number -> tokens that speculation has
        self._rows: list[tuple[int, int, list[int], int, int]] = []

    def forget(self) -> None:
        """A new speculation process knows nothing."""
        self._told.clear()
        self._rows.clear()

    def tell(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Everything of a sequence that speculation has not been told."""
        start = self._told.get(sequence.number, 0)
        self._told[sequence.number] = sequence.known
        self._rows.append((sequence.number, start, sequence.tokens(start).tolist(), drafted, accepted))

    def end(self, sequence: Sequence) -> None:
        """The sequence is over."""
        if self._told.pop(sequence.number, None) is not None:
            self._rows.append((sequence.number, 0, [], -1, 0))

    def take(self) -> Tails | None:
        """The next message, or None."""
        if not self._rows:
            return None
        rows, self._rows = self._rows, []
        return Tails(
            sequences=int64s([row[0] for row in rows]),
            starts=int32s([row[1] for row in rows]),
            counts=int32s([-1 if row[3] < 0 else len(row[2]) for row in rows]),
            ids=int32s([token for row in rows for token in row[2]]),
            drafted=int32s([max(row[3], 0) for row in rows]),
            accepted=int32s([row[4] for row in rows]),
        )
