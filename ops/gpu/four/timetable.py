"""Runs one after the other within a limit of time. What does not fit any more is left out by name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TimedRun:
    """One program. `arguments`: its command line. `expected_s`: what it takes; it is not begun with less time left. It is ended
    after twice as long."""

    name: str
    arguments: Sequence[str]
    expected_s: float
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunOutcome:
    """What came of a run. `status`: its exit status; None: it was not begun, or ended for its time, as `why` says. `figures`:
    what it has measured; `tail`: the end of what it printed."""

    name: str
    status: int | None
    took_s: float = 0.0
    why: str = ""
    figures: Sequence[Any] = ()
    tail: str = ""


Begin = Callable[[TimedRun, float], RunOutcome]  # (run, seconds that it may take) -> what came of it


def in_time(runs: Sequence[TimedRun], limit_s: float, begin: Begin, clock: Callable[[], float]) -> list[RunOutcome]:
    """Each run's outcome, in their order. A run that fails leaves the others alone."""
    end_s = clock() + limit_s
    return [_one(run, end_s - clock(), begin) for run in runs]


def _one(run: TimedRun, left_s: float, begin: Begin) -> RunOutcome:
    if left_s < run.expected_s:
        return RunOutcome(run.name, None, why=f"needs about {run.expected_s:g} s, and {max(left_s, 0.0):.0f} s were left")
    return begin(run, min(2.0 * run.expected_s, left_s))
