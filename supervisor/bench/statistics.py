"""Percentiles, summaries, arrival times. Pure: numbers and a random generator in, numbers out."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of an ascending sequence lies, interpolated between neighbours.

    Raises: ValueError for an empty sequence or a share outside of 0 to 1.
    """
    if not ordered:
        raise ValueError("ordered: expected at least one value, got none")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share: expected 0 to 1, got {share}")
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True)
class Summary:
    """A distribution in six numbers."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    def scaled(self, factor: float, digits: int = 3) -> dict[str, float]:
        """The numbers as a table shows them: each but the count times `factor`, rounded."""
        values = {"mean": self.mean, "p50": self.p50, "p90": self.p90, "p99": self.p99, "max": self.max}
        return {"count": self.count} | {name: round(value * factor, digits) for name, value in values.items()}


def summarize(values: Sequence[float]) -> Summary | None:
    """The summary of values in any order; nothing for no values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99))
    return Summary(len(ordered), math.fsum(ordered) / len(ordered), p50, p90, p99, ordered[-1])


def auc(lower: Sequence[float], higher: Sequence[float]) -> float:
    """How often a value of `lower` is below one of `higher`, a tie counting half: the area under the curve of a test that tells
    them apart. 0.5: it guesses; 1.0: it is always right.

    Raises: ValueError if one of them is empty.
    """
    if not lower or not higher:
        raise ValueError("lower, higher: expected at least one value of each")
    ordered = sorted(higher)
    n_above = sum(2 * len(ordered) - bisect_left(ordered, value) - bisect_right(ordered, value) for value in lower)
    return n_above / (2 * len(lower) * len(ordered))


def poisson_arrivals(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Seconds from the start at which requests arrive, without end: exponential gaps with mean 1 / rate.

    Raises: ValueError for a rate of 0 or less.
    """
    if rate_per_s <= 0:
        raise ValueError(f"rate_per_s: expected more than 0, got {rate_per_s}")
    now_s = 0.0
    while True:
        now_s += rng.expovariate(rate_per_s)
        yield now_s
