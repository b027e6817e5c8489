"""When sequences that were refused for now are submitted again: with a pause that grows, and within a budget."""

from __future__ import annotations

from collections.abc import Callable

from actors.gateway.dispatch.breakers.retry_budget import RetryBudget
from actors.gateway.dispatch.post import Post, Timer

_FIRST_S, _LONGEST_S = 0.02, 1.0


class RetryTimer:
    """One timer for all sequences that wait. `retry` submits them. Without budget the pause is the longest one, so a replica
    that refuses everything costs little; no sequence is given up for that."""

    def __init__(self, post: Post, budget: RetryBudget, retry: Callable[[], None]) -> None:
        self._post, self._budget, self._retry = post, budget, retry
        self._timer: Timer | None = None
        self.n_delayed = 0  # by a spent budget

    def set(self, n_submissions: int) -> None:
        """Retry soon, for a sequence that was submitted so often. A timer that runs already stays."""
        if self._timer is None:
            delay_s = min(_FIRST_S * 2 ** min(n_submissions, 8), _LONGEST_S)
            if not self._budget.take(self._post.now_s()):
                self.n_delayed, delay_s = self.n_delayed + 1, _LONGEST_S
            self._timer = self._post.later(delay_s, self._retry)

    def clear(self) -> None:
        """Everything that waits is submitted now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
