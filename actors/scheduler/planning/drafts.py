"""The scheduler's side of speculation: received drafts that wait for a step, and the next report of new tokens. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from actors.scheduler.sequences.likely_drafts import LikelyDrafts
from actors.scheduler.sequences.sequence import Sequence
from messages.drafts import Drafts, Tails
from messages.wire.arrays import int32s, int64s


class ReceivedDrafts:
    """One draft per sequence: ids for positions start, start + 1, ... Late and wrong drafts are dropped."""

    def __init__(self) -> None:
        self._by_number: dict[int, tuple[int, list[int]]] = {}  # sequence number -> (start, ids)
        self.likely = LikelyDrafts()

    def receive(self, message: Drafts, is_running: Callable[[int], bool]) -> None:
        """Keep the drafts of a message. Each replaces the older draft of its sequence. `is_running(number)` tells whether the
        sequence with this number still gets tokens; drafts of others are dropped."""
        offset, ids = 0, message.ids.tolist()
        rows = zip(message.sequences.tolist(), message.starts.tolist(), message.counts.tolist(), strict=True)
        for number, start, count in rows:
            if is_running(number):
                self._by_number[number] = (start, ids[offset : offset + count])
            offset += count

    def __len__(self) -> int:
        return len(self._by_number)

    def end(self, number: int) -> None:
        """The sequence with this number has ended: drop what is kept of it."""
        self._by_number.pop(number, None)
        self.likely.end(number)

    def clear(self) -> None:
        """Drop all drafts, because speculation has died."""
        self._by_number.clear()

    def extends_past_flight(self, sequence: Sequence) -> bool:
        """True if the draft is longer than the steps in flight, so that waiting for their results and then verifying the draft
        is better than a further plain step."""
        return len(self._rest(sequence)) > sequence.in_flight

    def pop(self, sequence: Sequence, depth: int) -> list[int]:
        """At most `depth` draft ids for the positions after all known tokens; none if the known tokens differ from the draft.

        The rest of the draft stays for the next step.
        """
        return self._rest(sequence)[:depth]

    def _rest(self, sequence: Sequence) -> list[int]:
        """The draft ids after all known tokens. A draft that differs from them, or is used up, is dropped."""
        draft = self._by_number.get(sequence.number)
        if draft is None:
            return []
        start, ids = draft
        n_known = sequence.known - start  # ids of the draft that have become known tokens meanwhile
        if n_known < 0 or n_known >= len(ids) or ids[:n_known] != sequence.tokens(start).tolist():
            del self._by_number[sequence.number]
            return []
        return ids[n_known:]


@dataclass(frozen=True)
class _TailRow:
    """One row of the next `Tails`."""

    number: int
    start: int
    ids: list[int]
    drafted: int = 0
    accepted: int = 0
    has_ended: bool = False


class TailReport:
    """Collects new tokens of the sequences that want drafts, and the acceptance of their drafts, until `take`."""

    def __init__(self) -> None:
        self._n_sent: dict[int, int] = {}  # sequence number -> tokens that speculation has
        self._rows: list[_TailRow] = []

    def clear(self) -> None:
        """Forget what was sent, because a new speculation process has no tokens yet."""
        self._n_sent.clear()
        self._rows.clear()

    def has(self, number: int) -> bool:
        """True if speculation was told about the sequence with this number, and not yet about its end."""
        return number in self._n_sent

    def add(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Add every token that speculation does not have; `accepted` of `drafted` draft tokens were accepted."""
        start = self._n_sent.get(sequence.number, 0)
        self._n_sent[sequence.number] = sequence.known
        self._rows.append(_TailRow(sequence.number, start, sequence.tokens(start).tolist(), drafted, accepted))

    def end(self, sequence: Sequence) -> None:
        """Add the end of a sequence, if speculation knows the sequence."""
        if self._n_sent.pop(sequence.number, None) is not None:
            self._rows.append(_TailRow(sequence.number, 0, [], has_ended=True))

    def take(self) -> Tails | None:
        """The next message, or None when there is nothing to report."""
        if not self._rows:
            return None
        rows, self._rows = self._rows, []
        return Tails(
            sequences=int64s([row.number for row in rows]),
            starts=int32s([row.start for row in rows]),
            counts=int32s([-1 if row.has_ended else len(row.ids) for row in rows]),
            ids=int32s([token for row in rows for token in row.ids]),
            drafted=int32s([row.drafted for row in rows]),
            accepted=int32s([row.accepted for row in rows]),
        )
