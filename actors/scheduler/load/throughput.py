"""How many tokens a replica can compute in a second, by what it has computed of late. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

_MEMORY_S = 2.0  # what happened so long ago counts a third as much as what happens now


class _Reading(NamedTuple):
    now_s: float
    n_computed: int
    n_generated: int
    is_queued: bool


class Throughput:
    """Rates from totals that are read now and then. Times are seconds of the monotonic clock.

    Only times between two readings at which sequences ran count, so the rates of a replica that is idle stay as they were. A
    replica for which nothing waits computes as little as it is asked for. So times between readings that did not both find
    work waiting count only if more was computed in them than the rates say."""

    def __init__(self) -> None:
        self._busy_s = self._prompt_tokens = self._generated_tokens = 0.0  # of late
        self._last: _Reading | None = None  # None: nothing runs

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens computed in a second; 0 if nothing has run yet."""
        return self._prompt_tokens / self._busy_s if self._busy_s > 0.0 else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens generated in a second; 0 if nothing has run yet."""
        return self._generated_tokens / self._busy_s if self._busy_s > 0.0 else 0.0

    def rest(self) -> None:
        """Nothing runs now, or nothing can be computed."""
        self._last = None

    def read(self, now_s: float, n_computed: int, n_generated: int, *, is_queued: bool) -> None:
        """Sequences run. `n_computed`, `n_generated`: prompt tokens and generated tokens since the start. `is_queued`: others
        wait."""
        last, self._last = self._last, _Reading(now_s, n_computed, n_generated, is_queued)
        if last is None or now_s <= last.now_s:
            return
        took_s = now_s - last.now_s
        prompt_tokens, generated_tokens = max(n_computed - last.n_computed, 0), max(n_generated - last.n_generated, 0)
        is_full = is_queued and last.is_queued
        if not is_full and prompt_tokens + generated_tokens <= (self.prefill_rate + self.decode_rate) * took_s:
            return
        kept = math.exp(-took_s / _MEMORY_S)
        self._busy_s = self._busy_s * kept + took_s
        self._prompt_tokens = self._prompt_tokens * kept + prompt_tokens
        self._generated_tokens = self._generated_tokens * kept + generated_tokens
