"""Ratios of servers that were measured in turns, and how far two servers of one kind differ by chance. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Rounds = Sequence[float]  # a figure of one server, such as tokens a second, in each round


@dataclass(frozen=True)
class Ratio:
    """How a kind of servers does beside another, over the rounds: the median, and its middle half."""

    median: float
    p25: float
    p75: float

    def text(self) -> str:
        """For a table."""
        return f"{self.median:.4f} ({self.p25:.4f} to {self.p75:.4f})"


def ratio_of(kind: Sequence[Rounds], other: Sequence[Rounds]) -> Ratio:
    """`kind` beside `other`, each the rounds of its servers, two rounds at least. In a round a kind counts as the geometric
    mean of its servers, so that one server that is fast by chance counts half."""
    ratios = [ours / theirs for ours, theirs in zip(_together(kind), _together(other), strict=True)]
    p25, median, p75 = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(round(median, 4), round(p25, 4), round(p75, 4))


def noise_of(kinds: Sequence[Sequence[Rounds]]) -> float:
    """The largest difference between two servers of one kind, as a share: a ratio nearer to 1 than this says nothing. 0.0 if
    no kind has two servers."""
    shares = [abs(math.log(_middle(one) / _middle(kind[0]))) for kind in kinds for one in kind[1:]]
    return round(math.expm1(max(shares, default=0.0)), 4)


def _together(servers: Sequence[Rounds]) -> list[float]:
    return [statistics.geometric_mean(each) for each in zip(*servers, strict=True)]


def _middle(rounds: Rounds) -> float:
    return statistics.median(rounds)
