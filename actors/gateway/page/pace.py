"""The pace of the server over the last seconds, from what its gateways have counted. Pure; the clock is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from actors.gateway.page.gateway_counts import Counted
from messages.metrics import quantile_of

RATE_S, LATENCY_S = 5.0, 30.0  # over so many seconds rates and latencies are taken
_MOST_SAMPLES = 64
Incarnation = tuple[str, int]  # the name of a gateway, and which of its lives


class PaceFigures(msgspec.Struct, frozen=True):
    """None: not known yet, or no first token has come in this time."""

    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    first_token_p50_ms: float | None = None
    first_token_p99_ms: float | None = None


class RecentPace:
    """Counts of the last seconds. A gateway that died takes what it counted last with it; its successor counts from 0."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[Incarnation, Counted]]] = deque(maxlen=_MOST_SAMPLES)

    def note(self, now_s: float, counted: Mapping[Incarnation, Counted | None]) -> None:
        """Add what the gateways have counted until now. None: one that lives and has said nothing, as after the death of the
        supervisor; its last counts stay."""
        before = self._samples[-1][1] if self._samples else {}
        merged = {who: one or before.get(who) for who, one in counted.items()}
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - LATENCY_S:
            self._samples.popleft()
        self._samples.append((now_s, {who: one for who, one in merged.items() if one is not None}))

    def figures(self) -> PaceFigures:
        """The pace until the newest sample."""
        if len(self._samples) < 2:
            return PaceFigures()
        at_s, base_s = self._samples[-1][0], self._base(RATE_S)[0]
        tokens, requests = (self._increase(RATE_S, of) for of in (lambda one: (one.tokens,), lambda one: (one.requests,)))
        bounds = self._bounds()  # another release may have others
        first_tokens = self._increase(LATENCY_S, lambda one: one.first_tokens if one.bounds == bounds else ())
        p50, p99 = (quantile_of(bounds, first_tokens, q) * 1e3 if any(first_tokens) else None for q in (0.5, 0.99))
        return PaceFigures(sum(tokens) / (at_s - base_s), sum(requests) / (at_s - base_s), p50, p99)

    def _base(self, window_s: float) -> tuple[float, dict[Incarnation, Counted]]:
        """The oldest sample in a window that ends with the newest; the last one before, if it is alone there."""
        *earlier, (now_s, _) = self._samples
        return next((one for one in earlier if one[0] >= now_s - window_s), earlier[-1])

    def _bounds(self) -> tuple[float, ...]:
        return next((one.bounds for one in self._samples[-1][1].values() if one.bounds), ())

    def _increase(self, window_s: float, of: Callable[[Counted], tuple[float, ...]]) -> list[float]:
        """By how much counts have grown in a window, over all gateways."""
        base_s, base = self._base(window_s)
        grown: list[float] = []
        for who, one in self._samples[-1][1].items():
            counts, before = of(one), base.get(who)
            if not counts or (before is None and one.born_s < base_s):
                continue  # the latter: it lived then, and had not reported
            earlier = of(before) if before is not None else (0.0,) * len(counts)
            more = [new - old for new, old in zip(counts, earlier, strict=True)]
            grown = [a + b for a, b in zip(grown, more, strict=True)] if grown else more
        return grown
