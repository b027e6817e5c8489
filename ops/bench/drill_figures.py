"""What a kill drill found: pauses, losses, wrong tokens. Pure: what was seen goes in, figures come out."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from messages.ids import role_of
from ops.bench.statistics import summarize


@dataclass
class StreamSeen:
    """One stream as its client saw it. Times are seconds of one monotonic clock."""

    began_s: float
    expected: Sequence[int]
    ids: list[int] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)  # of each chunk
    ended_s: float = 0.0
    error: str = ""  # why it was lost, or nothing
    is_greedy: bool = True

    @property
    def verdict(self) -> str:
        """right, wrong (a token that should not be, or one too many) or lost (cut short, or ended with an error)."""
        if list(self.expected[: len(self.ids)]) != self.ids:
            return "wrong"
        if self.error or len(self.ids) < len(self.expected):
            return "lost"
        return "right"


@dataclass(frozen=True)
class Kill:
    """One process that was killed."""

    at_s: float
    name: str
    incarnation: int


def first_wrong(stream: StreamSeen) -> dict:
    """Where a wrong stream leaves the right answer."""
    ids, expected = stream.ids, list(stream.expected)
    at = next((i for i, (got, right) in enumerate(zip(ids, expected, strict=False)) if got != right), len(expected))
    return {"greedy": stream.is_greedy, "at": at, "expected": expected[at : at + 4], "got": ids[at : at + 4]}


def pauses_after(kill: Kill, streams: Sequence[StreamSeen], until_s: float = math.inf) -> list[float]:
    """For each stream that was on its way at the kill: the longest time without tokens from then to `until_s` (the next
    kill). Tokens that were already on their way to the client come at once, so the first gap says nothing. A stream that
    never got any more tokens is not in here; it is lost."""
    pauses = []
    for stream in streams:
        at = bisect_right(stream.arrivals_s, kill.at_s)
        if stream.began_s > kill.at_s or not 0 < at < len(stream.arrivals_s):
            continue
        last = bisect_right(stream.arrivals_s, until_s) + 1  # a pause that outlasts the next kill counts for both
        times = [kill.at_s, *stream.arrivals_s[at:last]]
        pauses.append(max(after - before for before, after in pairwise(times)))
    return pauses


def drill_figures(kills: Sequence[Kill], streams: Sequence[StreamSeen]) -> dict:
    """Verdicts over all streams, pauses for each role that was killed, in milliseconds."""
    verdicts = [stream.verdict for stream in streams]
    pauses: dict[str, list[float]] = {}
    for kill, next_kill in zip_longest(kills, kills[1:]):
        until_s = next_kill.at_s if next_kill else math.inf
        pauses.setdefault(role_of(kill.name), []).extend(pauses_after(kill, streams, until_s))
    every = [pause for group in pauses.values() for pause in group]
    return {
        "kills": len(kills),
        "kills_by_role": {role: sum(role_of(kill.name) == role for kill in kills) for role in pauses},
        "streams": len(streams),
        "tokens": sum(len(stream.ids) for stream in streams),
        "right": verdicts.count("right"),
        "wrong": verdicts.count("wrong"),
        "lost": verdicts.count("lost"),
        "wrong_greedy": sum(stream.is_greedy for stream in streams if stream.verdict == "wrong"),
        "wrong_first": [first_wrong(stream) for stream in streams if stream.verdict == "wrong"][:8],
        "errors": sorted({stream.error for stream in streams if stream.error})[:8],
        "pause_ms": _milliseconds(every),
        "pause_ms_by_role": {role: _milliseconds(group) for role, group in pauses.items()},
        "usual_gap_ms": _milliseconds([b - a for s in streams for a, b in zip(s.arrivals_s, s.arrivals_s[1:], strict=False)]),
    }


def _milliseconds(values: Sequence[float]) -> dict | None:
    summary = summarize(values)
    return summary.scaled(1e3, 1) if summary else None
