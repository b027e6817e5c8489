"""Sequences that enter their slots ahead of the load that brings their pages. Pure.

Moves and plans are done in one order, so a plan that is sent behind the last piece of a load reads what that brings. The way of
the answer to the scheduler, and that of the plan to the gang, then take their time while the pages are copied. But a load may
fail: a place may be missing or damaged. So until every rank has answered:

- results of plans with rows of such a sequence wait (`gang/held_results.py`), and all results behind them;
- no page of it is sealed, so nobody shares what it computes, and no later scheduler adopts it.

If the load fails, the sequence leaves its slot, and what it has computed is dropped. So no client gets a token of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from actors.pages.page_ledger import PageLedger
from actors.scheduler.planning.load_cost import LoadCost
from actors.scheduler.planning.page_loads import PageLoad, PageLoads
from actors.scheduler.planning.plan_builder import PlannedStep
from actors.scheduler.sequences.queues import SequenceQueues
from actors.scheduler.sequences.sequence import Sequence

_MOST_S = 0.025  # of a load whose sequence enters ahead of it: whoever comes meanwhile waits on the device, too


class _RunAhead(NamedTuple):
    """A stay of a sequence in a slot, on pages that this load brings."""

    sequence: Sequence
    stay: int
    load: PageLoad

    @property
    def has_left(self) -> bool:
        """True once the sequence has left this slot: results for that stay are ignored anyway."""
        return self.sequence.stay != self.stay


class RunsAhead:
    """The sequences of one gang that run ahead of their loads. cost: of loads; is_paused: True while none may."""

    def __init__(self, queues: SequenceQueues, loads: PageLoads, cost: LoadCost, is_paused: Callable[[], bool]) -> None:
        self._queues, self._loads, self._cost, self._is_paused = queues, loads, cost, is_paused
        self._runs: dict[int, _RunAhead] = {}  # by number of the sequence
        self.n_entered = 0  # since the scheduler began

    def __bool__(self) -> bool:
        """True while there may be one."""
        return bool(self._runs)

    def pages_for(self, sequence: Sequence, shared: list[int]) -> list[int]:
        """The pages on which a waiting sequence may enter a slot now, ahead of the load that brings them; [] if it has to wait,
        or need not. shared: the pages of its prefix that the device has. A plan waits on the device for the pages that it
        reads, with all of its rows: so this is for a sequence that is alone, and for a short time."""
        load = self._loads.sent_for(sequence.number)
        if load is None or load.before != shared or self._queues.running or len(self._queues.waiting) > 1:
            return []
        page_s = self._cost.page_s
        is_short = page_s is not None and page_s * len(load.pages) <= _MOST_S
        return list(load.pages) if is_short and not self._is_paused() else []

    def enter(self, sequence: Sequence) -> None:
        """A sequence has entered a slot on the pages that `pages_for` has returned."""
        load = self._loads.sent_for(sequence.number)
        assert load is not None, "the load had not ended"
        self._runs[sequence.number] = _RunAhead(sequence, sequence.stay, load)
        self.n_entered += 1

    def has(self, sequence: Sequence) -> bool:
        """True while the sequence is in its slot on pages that have not been proven to come."""
        run = self._runs.get(sequence.number)
        return run is not None and not run.has_left

    def keeps_unsealed(self, sequence: Sequence) -> bool:
        """True while no page of a sequence may be sealed: pages before it may not have come, or are not sealed yet."""
        return bool(self._loads.come) or self.has(sequence)

    def is_in(self, planned: PlannedStep | None) -> bool:
        """True if a plan has a row of such a sequence."""
        return planned is not None and any(self.has(row.sequence) for row in planned.rows)

    def end(self, load: PageLoad, ledger: PageLedger | None) -> None:
        """A load has ended. If not all of its pages have come, the sequence that runs on them leaves its slot, and computes
        them: it has had the chance to load them."""
        for run in [run for run in self._runs.values() if run.load is load]:
            sequence = self._runs.pop(run.sequence.number).sequence
            if load.is_whole or run.has_left:
                continue
            pages = self._queues.preempt(sequence)
            sequence.n_cached, sequence.cached_stay, sequence.loaded_stay = 0, sequence.stay, sequence.stay
            if ledger is not None:
                ledger.release(pages)
