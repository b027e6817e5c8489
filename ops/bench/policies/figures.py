"""What a replayed trace shows: shares, deadlines met, first tokens, the cost of planning. Pure."""

from __future__ import annotations

from collections.abc import Sequence as Values

from ops.bench.policies.replay import ReplayedTrace
from ops.bench.policies.traces import LIGHT_FROM_S

_WINDOW_S, _STRIDE_S = 10.0, 0.5
_FULL_ROWS = 250  # plans with fewer rows do not count for the cost


def shares(given: ReplayedTrace, caller: bytes, end_s: float) -> list[float]:
    """The caller's part of all tokens in each window of ten seconds, from its arrival on."""
    parts, begin_s = list[float](), LIGHT_FROM_S
    while begin_s + _WINDOW_S <= end_s:
        window = [(who, n) for at_s, who, n in given.served if begin_s <= at_s < begin_s + _WINDOW_S]
        parts.append(sum(n for who, n in window if who == caller) / max(sum(n for _, n in window), 1))
        begin_s += _STRIDE_S
    return parts


def share_error(parts: Values[float], wanted: float) -> float:
    """The largest distance of a part from the wanted one, as a fraction of the whole."""
    return max(abs(part - wanted) for part in parts)


def tokens_before(given: ReplayedTrace, end_s: float) -> int:
    """Tokens that were planned until then, of prompts and answers."""
    return sum(n for at_s, _, n in given.served if at_s < end_s)


def met(given: ReplayedTrace) -> float:
    """The part of the requests whose first token and whole answer came in time."""
    n_met = 0
    for number, request in enumerate(given.requests):
        times, terms = given.token_times_s[number], request.terms
        if not times or terms.deadline_ms is None:
            continue
        is_first_met = terms.ttft_ms is None or times[0] - request.at_s <= terms.ttft_ms * 1e-3
        n_met += is_first_met and times[-1] - request.at_s <= terms.deadline_ms * 1e-3
    return n_met / len(given.requests)


def first_tokens_s(given: ReplayedTrace) -> list[float]:
    """Seconds to the first token of the requests of priority 0 that have one, in order of their arrival."""
    return [
        given.token_times_s[number][0] - request.at_s
        for number, request in enumerate(given.requests)
        if request.terms.priority == 0 and given.token_times_s[number]
    ]


def at_quantile(values: Values[float], quantile: float) -> float:
    """The value at this quantile of sorted values."""
    return values[min(int(len(values) * quantile), len(values) - 1)]


def plan_cost_us(given: ReplayedTrace) -> tuple[float, float]:
    """(processor time of a plan with a full batch, the part of it in the policy), both the median."""
    full = [index for index, n_rows in enumerate(given.n_rows) if n_rows >= _FULL_ROWS]
    plan_us, policy_us = (sorted(1e6 * values[index] for index in full) for values in (given.plan_s, given.policy_s))
    return at_quantile(plan_us, 0.5), at_quantile(policy_us, 0.5)


def saturated_per_s(given: ReplayedTrace) -> float:
    """Requests a second that the device computes when all are there at once: between a tenth and 80 % of all tokens."""
    times = sorted(at_s for times in given.token_times_s.values() for at_s in times)
    return 0.7 * len(given.requests) / (times[len(times) * 8 // 10] - times[len(times) // 10])
