"""What a scheduler knows of how the ranks follow the grammar of one sequence."""

from __future__ import annotations


class GrammarState:
    """Of a sequence with a grammar. Times are the monotonic clock."""

    def __init__(self) -> None:
        self._ready_stay = -1
        self.rests_until_s = 0.0  # its next masks are computed until then
        self.is_slow = False  # its masks are computed between its steps

    def is_ready(self, stay: int) -> bool:
        """True if the ranks have compiled it for this stay of its sequence in a slot."""
        return self._ready_stay == stay

    def compiled(self, stay: int) -> None:
        """The ranks have compiled it. That holds until the sequence leaves its slot or loses its gang."""
        self._ready_stay = stay

    def rest(self, now_s: float, wait_s: float) -> None:
        """The ranks compute its next masks for so long; 0.0: they are not slow."""
        self.is_slow, self.rests_until_s = wait_s > 0.0, now_s + wait_s
