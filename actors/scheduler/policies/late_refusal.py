"""What a request is told that is refused because it cannot be in time any more. Pure."""

from __future__ import annotations

import math

from actors.scheduler.sequences.sequence import Sequence
from messages.generation.sequences import Refused
from messages.generation.terms import Terms

_SOONEST_S, _LATEST_S = 1, 60  # when to come back
_S = 1e3  # milliseconds


def late_refusal(sequence: Sequence, now_s: float, n_waiting: int, wait_s: float) -> Refused:
    """Refuse a sequence, with its limits and when to come back. `now_s`: on the clock of the timelines. `n_waiting`: all that
    wait, this one included. `wait_s`: how long their work takes; 0: not known."""
    passed_s = now_s - sequence.timeline.arrived_s + sequence.age_s
    limits = _limits_ms(sequence.terms)
    expected = "a time that can still be kept" if len(limits) == 1 else "times that can still be kept"
    got = " and ".join(f"{limit_ms:g} ms" for limit_ms in limits.values())
    others = f"others that wait here: {max(n_waiting - 1, 0)}{f', work of about {wait_s:.1f} s' if wait_s else ''}"
    retry_s = min(max(math.ceil(wait_s), _SOONEST_S), _LATEST_S)
    detail = (
        f"{', '.join(limits)}: expected {expected}, got {got}, of which {passed_s * _S:.0f} ms have passed; "
        f"{others}; come back in {retry_s} s"
    )
    return Refused(attempt=sequence.attempt, code="deadline", detail=detail, retryable=False, retry_after_s=float(retry_s))


def _limits_ms(terms: Terms) -> dict[str, float]:
    """The times within which a request wants to be answered, by name. `deadline_ms` counts instead of `deadline_s`."""
    limits_ms: dict[str, float] = {}
    if terms.ttft_ms is not None:
        limits_ms["ttft_ms"] = terms.ttft_ms
    if terms.deadline_ms is not None:
        limits_ms["deadline_ms"] = terms.deadline_ms
    elif terms.deadline_s is not None:
        limits_ms["deadline_s"] = terms.deadline_s * _S
    return limits_ms
