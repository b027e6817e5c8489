"""Which ended answers have not reached their clients, and how long a drain waits for them. Pure: the caller gives the time.

A drain waits for a client as long as the client keeps reading, and gives it up when it has read nothing, or has not been
connected, for `patience_s`. Its answer stays in the journal, where the next start of the server finds it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _UndeliveredAnswer:
    """`size` and `left` are in the unit that the client confirms; `progress_s` is when `left` last changed."""

    size: int
    left: int
    progress_s: float


class UndeliveredAnswers:
    """How much each client still has to read of its answer, in the unit that it confirms: tokens or bytes."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._answers: dict[Hashable, _UndeliveredAnswer] = {}

    def add(self, key: Hashable, size: int, since_s: float) -> None:
        """Add an answer of `size`, which has waited for its client since `since_s`."""
        self._answers[key] = _UndeliveredAnswer(size, size, since_s)

    def confirm(self, key: Hashable, up_to: int, now_s: float) -> None:
        """The client has everything below `up_to`. An unknown key is ignored."""
        answer = self._answers.get(key)
        if answer is not None:
            self._set_left(key, answer, answer.size - up_to, now_s)

    def remove(self, key: Hashable) -> None:
        """The client has the whole answer. An unknown key is ignored."""
        self._answers.pop(key, None)

    def update(self, left_by_key: Mapping[Any, int], now_s: float) -> None:
        """Replace all entries. `left_by_key`: how much each client still has to read."""
        for gone in self._answers.keys() - left_by_key.keys():
            del self._answers[gone]
        for key, left in left_by_key.items():
            answer = self._answers.get(key)
            if answer is not None:
                self._set_left(key, answer, left, now_s)
            elif left > 0:
                self.add(key, left, now_s)

    def n_pending(self, now_s: float) -> int:
        """Answers whose clients have read something, or were added, within the last `patience_s`."""
        return sum(now_s - answer.progress_s <= self._patience_s for answer in self._answers.values())

    def drop_expired(self, now_s: float) -> None:
        """Remove the answers that `n_pending` no longer counts."""
        self._answers = {key: answer for key, answer in self._answers.items() if now_s - answer.progress_s <= self._patience_s}

    def _set_left(self, key: Hashable, answer: _UndeliveredAnswer, left: int, now_s: float) -> None:
        if left <= 0:
            del self._answers[key]
        elif left != answer.left:
            answer.left, answer.progress_s = left, now_s
