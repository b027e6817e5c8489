"""How long a replica takes to begin an answer, measured against its own past. Pure.

    wait until the first token  ~  pace * tokens of work (those that were there already, and those of the sequence)

So a long prompt may take long, and one behind a long queue too. One that has passed others, by its priority or its caller's
share, says nothing: it did not wait for what was there. A wait is slow above `_SLOW_FACTOR` times the expected one plus
`_SLACK_S`. What is slow is learned from as well, within limits: a replica that stays slow becomes the rule for itself.
"""

from __future__ import annotations

_SLOW_FACTOR, _SLACK_S = 8.0, 1.0
_WEIGHT = 0.1  # of the newest wait in the mean
_LEAST_OBSERVED = 8  # before, nothing is known and nothing is slow
_MOST_GROWTH = 3.0  # one wait counts as at most so many times the mean


class Pace:
    """The expected seconds for each token of work of one replica."""

    def __init__(self) -> None:
        self._mean_s, self._n_observed = 0.0, 0

    @property
    def s_per_token(self) -> float | None:
        """Expected seconds for each token of work; None before enough was observed."""
        return self._mean_s if self._n_observed >= _LEAST_OBSERVED else None

    def observe(self, wait_s: float, n_tokens: int) -> None:
        """A sequence with so many tokens of work, others before it included, has waited so long for its first token."""
        one_s = wait_s / max(n_tokens, 1)
        weight = max(_WEIGHT, 1 / (self._n_observed + 1))
        if self._n_observed >= _LEAST_OBSERVED:
            one_s = min(one_s, _MOST_GROWTH * self._mean_s)
        self._mean_s += weight * (one_s - self._mean_s)
        self._n_observed += 1

    def limit_s(self, n_tokens: int, least_s: float = 0.0) -> float:
        """The wait above which a sequence with this work counts as slow; infinite while nothing is known. `least_s`: no wait
        below it is expected."""
        one_s = self.s_per_token
        return float("inf") if one_s is None else _SLACK_S + _SLOW_FACTOR * max(one_s * n_tokens, least_s)
