"""How small sequences pass a large one that waits for pages, and when that ends. Pure.

The first sequence that finds no pages is *held up*. While it waits, `most_passed` others may enter although they come after it,
for at most `_LONGEST_S`. Then nobody enters who comes after it, so the pages of those that end are left for it. That holds for
plans of which it may be a part: others do not wait for one whose gateway has no credit, and a suspect that is computed alone
waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence, State

_LONGEST_S = 2.0  # in which others may pass


class Overtaking:
    """Who may pass whom in the queues of one gang. most_passed: 0: nobody passes."""

    def __init__(self, queues: SequenceQueues, most_passed: int) -> None:
        self._queues, self._most_passed = queues, most_passed
        self._held_up: Sequence | None = None
        self._n_passed, self._since_s = 0, 0.0
        self._may_run: Callable[[Sequence], bool] = lambda sequence: True

    def begin(self, may_run: Callable[[Sequence], bool]) -> None:
        """A plan begins. may_run: True for a sequence that may be a part of it."""
        self._may_run = may_run

    def may_enter(self, sequence: Sequence) -> bool:
        """False if the pages that are available are reserved for a sequence that comes before this one."""
        held_up = self._waiting_one()
        if held_up is None or held_up is sequence or self._is_open() or not self._is_after(sequence, held_up):
            return True
        return not self._may_run(held_up)

    def finds_no_pages(self, sequence: Sequence) -> bool:
        """A waiting sequence finds no pages. True if those after it may try. A sequence that has lost its pages is not passed:
        more sequences would only take more."""
        if self._waiting_one() is None:
            self._held_up, self._n_passed, self._since_s = sequence, 0, self._queues.now_s()
        return self._is_open() and not sequence.stay

    def entered(self, sequence: Sequence) -> None:
        """A sequence has entered its slot."""
        held_up = self._waiting_one()
        if held_up is not None and self._is_after(sequence, held_up):
            self._n_passed += 1

    def _waiting_one(self) -> Sequence | None:
        """The sequence that is held up, if it still waits."""
        if self._held_up is not None and self._held_up.state is not State.WAITING:
            self._held_up = None
        return self._held_up

    def _is_open(self) -> bool:
        return self._n_passed < self._most_passed and self._queues.now_s() - self._since_s < _LONGEST_S

    def _is_after(self, sequence: Sequence, other: Sequence) -> bool:
        return self._queues.policy.key(sequence) > self._queues.policy.key(other)
