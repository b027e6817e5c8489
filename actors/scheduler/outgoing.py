"""What one gateway is told next: tokens and endings of all of its sequences, gathered into one message. Pure."""

from __future__ import annotations

import numpy as np

from actors.scheduler.step_tracker import Advance
from messages.arrays import EMPTY_F32, EMPTY_I32, float32s, int32s, int64s
from messages.generation import Ending, Tokens
from messages.steps import Result


class Outgoing:
    """Gathers until `take` makes the next `Tokens`; counts them against the gateway's acknowledgements."""

    def __init__(self) -> None:
        self.number = 0
        self.acknowledged = 0
        self._attempts: list[int] = []
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._ids: list[int] = []
        self._endings: list[Ending] = []
        self._logprobs: list[tuple[int, Result, int]] = []  # (index in ids, result, offset there)

    @property
    def unacknowledged(self) -> int:
        """Messages that the gateway has not recorded yet."""
        return self.number - self.acknowledged

    def add(self, advance: Advance, result: Result) -> None:
        """Tokens of one sequence."""
        if len(result.logprobs):
            self._logprobs.append((len(self._ids), result, advance.offset))
        self._attempts.append(advance.row.sequence.attempt)
        self._firsts.append(advance.first)
        self._counts.append(len(advance.ids))
        self._ids += advance.ids

    def end(self, ending: Ending) -> None:
        """The one ending of an attempt."""
        self._endings.append(ending)

    def take(self) -> Tokens | None:
        """The next message, or None when there is nothing to say."""
        if not self._attempts and not self._endings:
            return None
        self.number += 1
        logprobs, width, top_ids, top_logprobs = self._take_logprobs()
        message = Tokens(
            number=self.number,
            attempts=int64s(self._attempts),
            firsts=int32s(self._firsts),
            counts=int32s(self._counts),
            ids=int32s(self._ids),
            endings=self._endings,
            logprobs=logprobs,
            top_width=width,
            top_ids=top_ids,
            top_logprobs=top_logprobs,
        )
        self._attempts, self._firsts, self._counts, self._ids, self._endings = [], [], [], [], []
        self._logprobs = []
        return message

    def _take_logprobs(self) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
        """All rows at the width of the widest: id -1 and NaN fill up."""
        if not self._logprobs:
            return EMPTY_F32, 0, EMPTY_I32, EMPTY_F32
        width = max(result.top_width for _, result, _ in self._logprobs)
        chosen = np.full(len(self._ids), np.nan, dtype="<f4")
        ids = np.full((len(self._ids), width), -1, dtype="<i4")
        values = np.full((len(self._ids), width), np.nan, dtype="<f4")
        ends = {end - count: end for end, count in zip(np.cumsum(self._counts).tolist(), self._counts, strict=True)}
        for at, result, offset in self._logprobs:
            n, own_width = ends[at] - at, result.top_width
            chosen[at : at + n] = result.logprobs[offset : offset + n]
            if own_width:
                top = slice(offset * own_width, (offset + n) * own_width)
                ids[at : at + n, :own_width] = result.top_ids[top].reshape(n, own_width)
                values[at : at + n, :own_width] = result.top_logprobs[top].reshape(n, own_width)
        return float32s(chosen), width, int32s(ids.ravel()), float32s(values.ravel())
