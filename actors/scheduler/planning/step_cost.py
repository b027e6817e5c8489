"""What steps cost, learnt from those that have ended: decode rows, and tokens of prompts by the keys that they attend to. Pure.

    step = decode(rows) + token_s * (prompt tokens) + key_s * (pairs of a prompt token and a key before it)

Steps without prompts give the first term, those with prompts the two constants. Each step with prompts
corrects both constants in its own proportions (normalised least mean squares, Widrow and Hoff, 1960), so the formula fits the
present prompts best. (`step_times` learns from the same steps how long one of a shape may take before it counts as hanging.)
"""

from __future__ import annotations

import math

from messages.steps import PAGE_TOKENS

_KEYS = 4096  # pairs are counted in this unit, so that a token with as many keys before it teaches both constants alike
_LEAST_TOKENS = 16  # fewer tokens cost about nothing in a step that reads all weights, and teach nothing
_FULL_TOKENS = 256  # from here on a step has its full weight
_DOWN, _UP = 0.5, 0.25  # of the error that is corrected; up is slower, because a pause of the machine lengthens steps
_OUTLIER = 2.0  # a step that took longer than so many times the expected time counts as if it had taken that time
_NEVER_S = 1e9


class StepCost:
    """The learnt costs of one gang's steps. Times are seconds."""

    def __init__(self) -> None:
        self._decode_s, self._n_rows = 0.0, 0  # of the last steps without prompts, and their rows
        self._token_s = self._keys_s = 0.0  # of a prompt's token, and of _KEYS pairs
        self.is_known = False  # a step with a prompt has been measured

    @property
    def is_decode_known(self) -> bool:
        """True once a step without prompts has been measured."""
        return self._n_rows > 0

    @property
    def token_s(self) -> float:
        """What a prompt's token adds to a step, without the keys that it attends to; 0 if nothing is known."""
        return self._token_s

    @property
    def pair_s(self) -> float:
        """What a pair of a prompt's token and a key before it adds to a step; 0 if nothing is known."""
        return self._keys_s / _KEYS

    def decode_s(self, n_rows: int) -> float:
        """A step of `n_rows` decode rows; 0 if nothing is known. One more row costs about as much as one token of a prompt."""
        if not n_rows:
            return 0.0
        return max(self._decode_s + (n_rows - self._n_rows) * self._token_s, self._decode_s / 2)

    def prompt_s(self, start: int, n_tokens: int) -> float:
        """What `n_tokens` of a prompt from position `start` on add to a step."""
        return self._token_s * n_tokens + self._keys_s * _pairs(start, n_tokens) / _KEYS

    def pages_s(self, n_before: int, n_pages: int) -> float:
        """What `n_pages` whole pages of a prompt, after `n_before` others, add to a step."""
        return self.prompt_s(n_before * PAGE_TOKENS, n_pages * PAGE_TOKENS)

    def step_s(self, n_rows: int, n_tokens: int, n_pairs: int) -> float:
        """A step of `n_rows` decode rows and `n_tokens` of prompts, with `n_pairs` of a token and a key before it; 0 if nothing
        is known."""
        return self.decode_s(n_rows) + self._token_s * n_tokens + self._keys_s * n_pairs / _KEYS

    def tokens_within(self, start: int, limit_s: float, most: int) -> int:
        """Tokens of a prompt from position `start` on that add at most `limit_s` to a step, 0 to `most`."""
        if limit_s <= 0.0:
            return 0
        if self.prompt_s(start, most) <= limit_s:
            return most
        half_key_s = self._keys_s / _KEYS / 2  # limit = half_key * n^2 + first * n
        first_s = self._token_s + self._keys_s * start / _KEYS
        return int(2 * limit_s / (first_s + math.sqrt(first_s * first_s + 4 * half_key_s * limit_s)))

    def learn(self, n_rows: int, n_tokens: int, n_pairs: int, took_s: float) -> None:
        """A step has taken `took_s`: `n_rows` decode rows and `n_tokens` of prompts, with `n_pairs` of a token and a key."""
        if not 0.0 <= took_s < _NEVER_S:  # ignores NaN too: a wrong clock must not stop planning
            return
        if n_tokens:
            self._learn_prompts(n_tokens, n_pairs / _KEYS, took_s - self.decode_s(n_rows))
        elif n_rows:
            expected_s = self.decode_s(n_rows) if self._n_rows else took_s
            self._decode_s, self._n_rows = expected_s + _correction_s(expected_s, took_s), n_rows

    def _learn_prompts(self, n_tokens: int, n_keys: float, took_s: float) -> None:
        if n_tokens < _LEAST_TOKENS:
            return
        expected_s = self._token_s * n_tokens + self._keys_s * n_keys
        error_s = _correction_s(expected_s, took_s) if self.is_known else took_s
        self.is_known = True
        share = error_s * min(n_tokens / _FULL_TOKENS, 1.0) / (n_tokens * n_tokens + n_keys * n_keys)
        self._token_s = max(self._token_s + share * n_tokens, 0.0)
        self._keys_s = max(self._keys_s + share * n_keys, 0.0)


def _pairs(start: int, n_tokens: int) -> int:
    return n_tokens * start + n_tokens * n_tokens // 2


def _correction_s(expected_s: float, took_s: float) -> float:
    error_s = (min(took_s, _OUTLIER * expected_s) if expected_s > 0.0 else took_s) - expected_s
    return error_s * (_UP if error_s > 0.0 else _DOWN)
