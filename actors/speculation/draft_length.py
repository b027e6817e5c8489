"""How many tokens to propose, from how the last proposals fared. Pure.

With acceptance probability a per token, a draft of k gives a + a^2 + ... + a^k extra tokens; beyond 1 / (1 - a) tokens the
next one is accepted with a probability below 1/e. So the length follows 2 / (1 - a), and a sequence whose drafts mostly fail is
left alone for a while.
"""

from __future__ import annotations

_MEMORY = 0.8  # weight of the past in the moving acceptance
_HOPELESS = 0.15
_PAUSE_TOKENS = 32


class DraftLength:
    """Acceptance history of one sequence."""

    def __init__(self) -> None:
        self._acceptance = 0.7  # hope: a repetition was found, after all
        self._pause_tokens = 0

    def judge(self, drafted: int, accepted: int) -> None:
        """A draft was verified."""
        if drafted > 0:
            self._acceptance = _MEMORY * self._acceptance + (1 - _MEMORY) * accepted / drafted
            if self._acceptance < _HOPELESS:
                self._pause_tokens, self._acceptance = _PAUSE_TOKENS, 2 * _HOPELESS

    def wanted(self, new_tokens: int, longest: int) -> int:
        """Tokens to propose now that `new_tokens` more are known; 0 while it pauses."""
        self._pause_tokens = max(0, self._pause_tokens - new_tokens)
        if self._pause_tokens:
            return 0
        return max(2, min(longest, round(2 / max(1e-3, 1 - self._acceptance))))
