"""How often the draft tokens at each position were accepted: a draft is accepted up to its first wrong token."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

_POSITIONS = 64  # the most that `speculation.max_draft` allows; longer drafts, of grammars, count at the last one


class AcceptedByPosition(Collector):
    """Counts rows by the accepted tokens of their drafts, and adds them up by position when somebody asks."""

    def __init__(self) -> None:
        self._rows = [0] * (_POSITIONS + 1)  # with so many accepted tokens
        self._beyond = 0  # accepted tokens after the last position

    def count(self, n_accepted: int) -> None:
        """The draft of one row was verified."""
        if n_accepted > _POSITIONS:
            self._beyond += n_accepted - _POSITIONS
            n_accepted = _POSITIONS
        self._rows[n_accepted] += 1

    def collect(self) -> Iterator[Metric]:
        """The present numbers, up to the last position that was accepted."""
        text = "Draft tokens accepted, by their place in the draft, from 0 on"
        family = CounterMetricFamily("tardigrade_scheduler_accepted_draft_positions", text, labels=["position"])
        reaching = list(accumulate(reversed(self._rows[1:])))[::-1]  # rows that have accepted the token at each position
        reaching[-1] += self._beyond
        for position, n_rows in enumerate(reaching):
            if n_rows:
                family.add_metric([str(position)], n_rows)
        yield family
