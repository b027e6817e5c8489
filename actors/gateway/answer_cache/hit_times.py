"""The histogram of the time that requests with a kept answer are inside a gateway."""

from __future__ import annotations

from messages.metrics import Histogram

_BOUNDS_S = (1e-4, 2e-4, 3e-4, 5e-4, 7.5e-4, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1)


def hit_times() -> Histogram:
    """A new one, without an observation."""
    what = "Time from the last byte of a request's body until its kept answer was written."
    return Histogram("tardigrade_answer_hit_seconds", what, _BOUNDS_S)
