"""How many tokens to propose for a sequence, computed from how often its earlier matches have named the next token. Pure.

Each new token shows whether the n-gram before it would have predicted it, so this is known also while no draft is verified: a
sequence that does not repeat gets no drafts, and one that begins to repeat is noticed at no cost. Long n-grams predict better
than short ones, so each length has a rate of its own.

A draft that begins after an n-gram of n tokens has its next token after one of n + 1 tokens. The product of these rates is the
probability that a token is accepted. A draft ends where it is too low, and is proposed if the expected tokens are worth more
than the draft takes.
"""

from __future__ import annotations

_FIRST_RATES = {1: 0.25, 2: 0.45, 3: 0.65}  # by length of the n-gram, before any token was seen
_LONG_RATE = 0.8  # the same for longer ones
_FIRST_WEIGHT = 4.0  # of the first rate, in tokens
_MEMORY = 0.9  # weight of the past
# In steps of one token. A further token in a step costs a GPU next to nothing and CPU cores 0.15 to 0.25. A step with a draft
# is not planned ahead, so the device waits for a message to the scheduler and one back.
_TOKEN_COST = 0.05
_DRAFT_COST = 0.3


class DraftLength:
    """How often the n-grams of one sequence have predicted its next token."""

    def __init__(self, longest_match: int) -> None:
        """N-grams of at most `longest_match` tokens are looked up."""
        self._longest_match = longest_match
        self._seen: dict[int, tuple[float, float]] = {}  # length of the n-gram -> weighted tokens that were right, and all

    def note(self, n_matched: int, is_right: bool) -> None:
        """Note whether an earlier n-gram of `n_matched` tokens has predicted the token that came."""
        right, total = self._seen.get(n_matched, (0.0, 0.0))
        self._seen[n_matched] = (_MEMORY * right + is_right, _MEMORY * total + 1.0)

    def wanted(self, n_matched: int, longest: int) -> int:
        """Tokens to propose after an n-gram of `n_matched` tokens, at most `longest`; 0 if a draft would cost more than it
        gives, or if no n-gram has matched."""
        if not n_matched:
            return 0
        accepted, gain, length = 1.0, -_DRAFT_COST, 0
        while length < longest:
            accepted *= self._rate(min(n_matched + length, self._longest_match))
            if accepted < _TOKEN_COST:
                break
            gain += accepted - _TOKEN_COST
            length += 1
        return length if gain > 0.0 else 0

    def _rate(self, n_matched: int) -> float:
        right, total = self._seen.get(n_matched, (0.0, 0.0))
        first = _FIRST_RATES.get(n_matched, _LONG_RATE)
        return (_FIRST_WEIGHT * first + right) / (_FIRST_WEIGHT + total)
