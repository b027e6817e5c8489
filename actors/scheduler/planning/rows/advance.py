"""What a result gives: the new tokens of rows, one by one or of a whole batch, and how their sequences go on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from actors.scheduler.planning.rows.decode_batch import BatchRows
from actors.scheduler.planning.rows.row import Row
from messages.outcomes import EndReason
from messages.steps import GrammarReport


class Advance(msgspec.Struct, frozen=True, gc=False):
    """New tokens of one sequence: the ids that count, and why the sequence has ended with them (None: it goes on)."""

    row: Row
    first: int  # index of ids[0] among the generated tokens
    ids: list[int]
    offset: int  # of ids[0] in the result's arrays
    ending: EndReason | None
    detail: str = ""  # of the ending "failed": why its grammar cannot be followed any further
    rest_s: float = 0.0  # its grammar is slow: it is not planned for so long

    @property
    def n_accepted(self) -> int:
        """Draft tokens of the row that were accepted."""
        return len(self.ids) - 1 if self.row.drafts else 0

    @property
    def is_first_of_plan(self) -> bool:
        """True if this is the first result of the row's plan, which may have granted several steps of one token each."""
        return self.row.sequence.known <= self.row.start + self.row.count + 1


class BatchAdvance:
    """One new token of each sequence of a batch, whose plan had these rows. `endings`: why some have ended with it, by their
    places, in order."""

    def __init__(
        self, rows: BatchRows, index: int, ids: np.ndarray, offsets: np.ndarray, endings: dict[int, EndReason]
    ) -> None:
        """index: of the step in its plan. ids: [n] int32. offsets: of the ids in the result's arrays, [n]."""
        self.rows, self._index, self.ids, self._offsets, self.endings = rows, index, ids, offsets, endings

    @property
    def n_computed(self) -> np.ndarray:
        """Positions of each sequence whose keys and values are computed, [n] int32: all but that of the new token."""
        return self.rows.starts + 1 + self._index

    @property
    def firsts(self) -> np.ndarray:
        """Index of the new token among the generated ones, [n] int32."""
        return self.n_computed - self.rows.batch.prompts

    def at(self, place: int) -> Advance:
        """That of the sequence at this place."""
        row = self.rows.row(place)
        first = row.start + 1 + self._index - row.sequence.n_prompt
        return Advance(row, first, [int(self.ids[place])], int(self._offsets[place]), self.endings.get(place))

    def ended(self) -> list[Advance]:
        """Those of the sequences that have ended."""
        return [self.at(place) for place in self.endings]


class Advances:
    """All new tokens of one step: those of a batch, if it was planned together, and those of the rows after it."""

    def __init__(self, together: BatchAdvance | None, others: list[Advance]) -> None:
        self.together, self.others = together, others

    @property
    def n_tokens(self) -> int:
        """Number of new tokens."""
        n_together = len(self.together.ids) if self.together is not None else 0
        return n_together + sum([len(advance.ids) for advance in self.others])

    def __iter__(self) -> Iterator[Advance]:
        """One by one, in the order of the plan."""
        if self.together is not None:
            yield from map(self.together.at, range(len(self.together.ids)))
        yield from self.others

    def ended(self) -> list[Advance]:
        """Those of the sequences that have ended, in the order of the plan."""
        together = self.together.ended() if self.together is not None else []
        return together + [advance for advance in self.others if advance.ending is not None]


def advance_batch(rows: BatchRows, index: int, ids: np.ndarray) -> BatchAdvance:
    """Append the new tokens, [n] int32, of step `index` of a plan to the sequences of its batch; those that have left their
    slots get none."""
    stays = [sequence.stay for sequence in rows.batch.sequences]
    offsets = np.arange(len(ids))
    if stays != rows.batch.stays:
        is_here = np.array(stays) == np.array(rows.batch.stays)
        rows, ids, offsets = rows.only(is_here), ids[is_here], offsets[is_here]
    batch, tokens = rows.batch, ids.tolist()
    for sequence, token in zip(batch.sequences, tokens, strict=True):
        sequence.in_flight -= 1
        sequence.known += 1
        sequence.ids.append(token)
    endings: dict[int, EndReason] = dict.fromkeys(np.flatnonzero(rows.starts + 2 + index >= batch.limits).tolist(), "length")
    if not batch.stop_tokens.isdisjoint(tokens):
        endings |= {at: "stop" for at, token in enumerate(tokens) if token in batch.sequences[at].stop_tokens}
    return BatchAdvance(rows, index, ids, offsets, dict(sorted(endings.items())))


def advance_plain(rows: list[Row], ids: list[int], offset: int) -> list[Advance]:
    """As `advance_row` for each row that has not left its slot, where none has drafts and each has one token: most results are
    so, and take half of the time. offset: of the first token in the result's arrays."""
    advances = []
    for at, (row, token) in enumerate(zip(rows, ids, strict=True), offset):
        s = row.sequence
        if s.stay != row.stay:
            continue
        first = s.known - s.n_prompt
        if first >= s.max_tokens:
            advances.append(advance_row(row, [token], at))
            continue
        s.in_flight -= 1
        s.append((token,))
        ending: EndReason | None = None
        if token in s.stop_tokens:
            ending = "stop"
        elif first + 1 == s.max_tokens:
            ending = "length"
        advances.append(Advance(row, first, [token], at, ending))
    return advances


def advance_row(row: Row, ids: list[int], offset: int) -> Advance:
    """Append the new tokens of a row up to the first stop token or the length limit."""
    sequence = row.sequence
    if row.drafts:
        sequence.is_verifying = False
        sequence.planned = row.start + len(ids)  # the last id has no keys and values yet
    else:
        sequence.in_flight -= 1
    first = sequence.known - sequence.n_prompt
    ending: EndReason | None = None
    if first + len(ids) > sequence.max_tokens:
        ids = ids[: sequence.max_tokens - first]
    if not sequence.stop_tokens.isdisjoint(ids):
        at = next(index for index, token in enumerate(ids) if token in sequence.stop_tokens)
        ids, ending = ids[: at + 1], "stop"
    sequence.append(ids)
    if ending is None and first + len(ids) >= sequence.max_tokens:
        ending = "length"
    return Advance(row, first, ids, offset, ending)


def advance_by(report: GrammarReport) -> Callable[[Row, list[int], int], Advance]:
    """As `advance_row`, but tokens of an answer whose grammar cannot be followed any further do not count, and it fails."""
    failed = {failure.slot: failure.reason for failure in report.failures}
    rests = {rest.slot: rest.wait_s for rest in report.rests}

    def advance_one(row: Row, ids: list[int], offset: int) -> Advance:
        if row.slot in failed:
            return Advance(row, row.sequence.n_generated, [], offset, "failed", failed[row.slot])
        advance = advance_row(row, ids, offset)
        return msgspec.structs.replace(advance, rest_s=rests[row.slot]) if row.slot in rests else advance

    return advance_one
