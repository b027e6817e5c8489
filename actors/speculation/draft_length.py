"""How many tokens to propose for a sequence, computed from how many of its last draft tokens were accepted. Pure.

If each token is accepted with probability a, a draft of k tokens gives a + a^2 + ... + a^k extra tokens; token 1 / (1 - a) and
those after it are accepted with a probability below 1/e. So the length is 2 / (1 - a), and a sequence whose drafts mostly fail
gets no drafts for a while.
"""

from __future__ import annotations

_FIRST_ACCEPTANCE = 0.7  # before any draft was verified: drafts are made only where something repeats
_MEMORY = 0.8  # weight of the past in the moving average
_TOO_LOW = 0.15  # mean acceptance at which drafts are paused
_PAUSE_TOKENS = 32
_LEAST_TOKENS = 2  # a shorter draft is not worth its row


class DraftLength:
    """The acceptance of one sequence's drafts: a moving average of accepted / drafted."""

    def __init__(self) -> None:
        self._acceptance = _FIRST_ACCEPTANCE
        self._pause_tokens = 0  # no drafts until this many more tokens are known

    def add_result(self, drafted: int, accepted: int) -> None:
        """Note that `accepted` of `drafted` draft tokens were accepted. Does nothing if `drafted` is 0."""
        if drafted > 0:
            self._acceptance = _MEMORY * self._acceptance + (1 - _MEMORY) * accepted / drafted
            if self._acceptance < _TOO_LOW:
                self._pause_tokens, self._acceptance = _PAUSE_TOKENS, 2 * _TOO_LOW

    def wanted(self, new_tokens: int, longest: int) -> int:
        """Tokens to propose, at most `longest`, now that `new_tokens` more are known; 0 during a pause."""
        self._pause_tokens = max(0, self._pause_tokens - new_tokens)
        if self._pause_tokens:
            return 0
        return max(_LEAST_TOKENS, min(longest, round(2 / max(1e-3, 1 - self._acceptance))))
