"""The next message to one gateway: tokens and endings of all of its sequences. Pure."""

from __future__ import annotations

import numpy as np

from actors.scheduler.sequence import Sequence
from actors.scheduler.step_tracker import Advance
from messages.generation import Ending, Tokens
from messages.steps import Result
from messages.wire.arrays import EMPTY_F32, EMPTY_I32, float32s, int32s, int64s


class Outgoing:
    """Tokens and endings, gathered until `take` makes the next message. Messages are counted against acknowledgements."""

    def __init__(self) -> None:
        self.number = 0
        self.acknowledged = 0
        self._rows: list[tuple[Sequence, int, list[int]]] = []  # (sequence, index of the first token, ids)
        self._endings: list[Ending] = []
        self._logprobs: list[tuple[int, Advance, Result]] = []  # (index in rows, its advance, result that holds its logprobs)

    @property
    def unacknowledged(self) -> int:
        """Messages that the gateway has not acknowledged yet."""
        return self.number - self.acknowledged

    def add(self, advance: Advance, result: Result) -> None:
        """Add tokens of one sequence. If its gateway wants them in groups, they stay in the sequence until a group is full."""
        sequence = advance.row.sequence
        if sequence.terms.group_tokens == 1:
            sequence.n_sent = advance.first + len(advance.ids)
            if len(result.logprobs):
                self._logprobs.append((len(self._rows), advance, result))
            self._rows.append((sequence, advance.first, advance.ids))
        elif sequence.is_due:
            self._rows.append((sequence, *sequence.take_unsent()))

    def end(self, sequence: Sequence, ending: Ending) -> None:
        """Add the one ending of an attempt, after all of its tokens."""
        if sequence.n_sent < sequence.n_generated:
            self._rows.append((sequence, *sequence.take_unsent()))
        self._endings.append(ending)

    def take(self) -> Tokens | None:
        """The next message, or None when there is nothing to send."""
        if not self._rows and not self._endings:
            return None
        self.number += 1
        rows = self._rows
        logprobs, width, top_ids, top_logprobs = self._gather_logprobs()
        message = Tokens(
            number=self.number,
            attempts=int64s([sequence.attempt for sequence, _, _ in rows]),
            firsts=int32s([first for _, first, _ in rows]),
            counts=int32s([len(ids) for _, _, ids in rows]),
            cached=int32s([min(sequence.n_cached, sequence.n_prompt) for sequence, _, _ in rows]),
            ids=int32s([token for _, _, ids in rows for token in ids]),
            endings=self._endings,
            logprobs=logprobs,
            top_width=width,
            top_ids=top_ids,
            top_logprobs=top_logprobs,
        )
        self._rows, self._endings, self._logprobs = [], [], []
        return message

    def _gather_logprobs(self) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
        """All rows at the width of the widest: id -1 and NaN fill up."""
        if not self._logprobs:
            return EMPTY_F32, 0, EMPTY_I32, EMPTY_F32
        width = max(result.top_width for _, _, result in self._logprobs)
        ends = np.cumsum([len(ids) for _, _, ids in self._rows]).tolist()
        chosen = np.full(ends[-1], np.nan, dtype="<f4")
        ids = np.full((ends[-1], width), -1, dtype="<i4")
        values = np.full((ends[-1], width), np.nan, dtype="<f4")
        for index, advance, result in self._logprobs:
            n, offset, own_width = len(advance.ids), advance.offset, result.top_width
            at = ends[index] - n
            chosen[at : at + n] = result.logprobs[offset : offset + n]
            if own_width:
                top = slice(offset * own_width, (offset + n) * own_width)
                ids[at : at + n, :own_width] = result.top_ids[top].reshape(n, own_width)
                values[at : at + n, :own_width] = result.top_logprobs[top].reshape(n, own_width)
        return float32s(chosen), width, int32s(ids.ravel()), float32s(values.ravel())
