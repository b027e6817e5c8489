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
        self._has_logprobs = False
        self._logprobs: list[tuple[np.ndarray, int, np.ndarray, np.ndarray]] = []  # (chosen, width, top ids, top values)

    @property
    def unacknowledged(self) -> int:
        """Messages that the gateway has not recorded yet."""
        return self.number - self.acknowledged

    def add(self, advance: Advance, result: Result) -> None:
        """Tokens of one sequence."""
        n, at = len(advance.ids), advance.offset
        self._attempts.append(advance.row.sequence.attempt)
        self._firsts.append(advance.first)
        self._counts.append(n)
        self._ids += advance.ids
        width = result.top_width
        if len(result.logprobs):
            self._has_logprobs = True
            top = slice(at * width, (at + n) * width)
            self._logprobs.append((result.logprobs[at : at + n], width, result.top_ids[top], result.top_logprobs[top]))
        else:
            self._logprobs.append((np.full(n, np.nan, dtype="<f4"), 0, EMPTY_I32, EMPTY_F32))

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
        self._logprobs, self._has_logprobs = [], False
        return message

    def _take_logprobs(self) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
        """All rows at the width of the widest: id -1 and NaN fill up."""
        if not self._has_logprobs:
            return EMPTY_F32, 0, EMPTY_I32, EMPTY_F32
        width = max(part[1] for part in self._logprobs)
        ids = np.full((len(self._ids), width), -1, dtype="<i4")
        values = np.full((len(self._ids), width), np.nan, dtype="<f4")
        at = 0
        for chosen, own_width, top_ids, top_values in self._logprobs:
            rows = slice(at, at + len(chosen))
            if own_width:
                ids[rows, :own_width] = top_ids.reshape(-1, own_width)
                values[rows, :own_width] = top_values.reshape(-1, own_width)
            at += len(chosen)
        chosen = np.concatenate([part[0] for part in self._logprobs])
        return float32s(chosen), width, int32s(ids.ravel()), float32s(values.ravel())
