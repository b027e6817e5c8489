"""How many tokens a replica computes in a second, while it has sequences to run. Pure."""

from __future__ import annotations

import math

_MEMORY_S = 2.0  # what happened so long ago counts a third as much as what happens now


class Throughput:
    """Rates from totals that are read now and then. Times are seconds of the monotonic clock.

    Only times between two readings at which sequences ran count, so the rates of a replica that is idle stay as they were."""

    def __init__(self) -> None:
        self._busy_s = self._prompt_tokens = self._generated_tokens = 0.0  # of late
        self._last: tuple[float, int, int] | None = None  # the last reading; None: nothing runs

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens computed in a second; 0 if nothing has run yet."""
        return self._prompt_tokens / self._busy_s if self._busy_s > 0.0 else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens generated in a second; 0 if nothing has run yet."""
        return self._generated_tokens / self._busy_s if self._busy_s > 0.0 else 0.0

    def rest(self) -> None:
        """Nothing runs now."""
        self._last = None

    def read(self, now_s: float, n_computed: int, n_generated: int) -> None:
        """Sequences run. `n_computed`, `n_generated`: prompt tokens and generated tokens since the start."""
        last, self._last = self._last, (now_s, n_computed, n_generated)
        if last is None or now_s <= last[0]:
            return
        took_s = now_s - last[0]
        kept = math.exp(-took_s / _MEMORY_S)
        self._busy_s = self._busy_s * kept + took_s
        self._prompt_tokens = self._prompt_tokens * kept + max(n_computed - last[1], 0)
        self._generated_tokens = self._generated_tokens * kept + max(n_generated - last[2], 0)
