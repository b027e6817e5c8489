"""What gateways have counted until now, as their metrics tell it: the basis of rates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from messages.lifecycle.lifecycle import MetricFamily

_TOKENS, _REQUESTS = "tardigrade_output_tokens", "tardigrade_requests"
_FIRST_TOKEN = "tardigrade_time_to_first_token_seconds"
_ACTIVE, _WAITING = "tardigrade_active_sequences", "tardigrade_waiting_sequences"
_BUCKET, _TOTAL = "_bucket", "_total"


class Counted(msgspec.Struct, frozen=True):
    """The counts of one incarnation of a gateway since it began. `born_s`: when that was, by the clock of the reader.

    `first_tokens`: first tokens by how long they took, in the buckets with the upper bounds `bounds` in s, and above the last.
    """

    born_s: float
    tokens: float  # of answers, that clients could see
    requests: float  # that have ended
    bounds: tuple[float, ...] = ()
    first_tokens: tuple[float, ...] = ()


def counted_in(families: Iterable[MetricFamily], born_s: float) -> Counted | None:
    """The counts in the metric families of a gateway; None if they have none, because it has not reported yet."""
    by_name = {family.name: family for family in families}
    if _TOKENS not in by_name:
        return None
    bounds, first_tokens = _buckets(by_name.get(_FIRST_TOKEN))
    tokens, requests = (_sum(by_name.get(name), _TOTAL) for name in (_TOKENS, _REQUESTS))
    return Counted(born_s, tokens, requests, bounds, first_tokens)


def sequences_in(families: Iterable[MetricFamily]) -> tuple[int, int]:
    """How many accepted sequences of a gateway have not ended, and how many of them wait for a scheduler."""
    by_name = {family.name: family for family in families}
    active, waiting = (int(_sum(by_name.get(name), "")) for name in (_ACTIVE, _WAITING))
    return active, waiting


def _sum(family: MetricFamily | None, suffix: str) -> float:
    return sum(one.value for one in family.samples if one.suffix == suffix) if family is not None else 0.0


def _buckets(family: MetricFamily | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Upper bounds of a histogram's buckets but the last, and the observations in each. Prometheus counts cumulatively."""
    samples = [one for one in family.samples if one.suffix == _BUCKET] if family is not None else []
    cumulative: Sequence[float] = [0.0, *(one.value for one in samples)]
    bounds = tuple(float(one.labels["le"]) for one in samples[:-1])
    return bounds, tuple(after - before for before, after in pairwise(cumulative))
