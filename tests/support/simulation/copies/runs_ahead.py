"""Edges at which a scheduler lets a sequence run ahead of the load that brings its pages, and learns what became of the load.

begins           the sequence enters its slot
proves           every page has come
takes back       a page has not come
gives up         there is no answer
forgets          caches are reset
has lost         the sequence has left its slot before: its client has gone, or its gang has died
lets another wait   for the same load
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch as patched

from actors.scheduler.planning.host_tier import HostTier
from actors.scheduler.planning.page_loads import PageLoad
from actors.scheduler.planning.tiers.runs_ahead import RunsAhead
from actors.scheduler.sequences.sequence import Sequence
from tests.support.simulation.copies.faults import CopyFaults


class _Ahead:
    """`faults`: of the copies of the run."""

    def __init__(self, faults: CopyFaults) -> None:
        self._faults, self._edges, self._why = faults, faults.edges, ""

    def enter(self, honest: Callable[..., None]) -> Callable[..., None]:
        def enter(ahead: RunsAhead, sequence: Sequence) -> None:
            with self._edges.around("begins a run ahead"):
                honest(ahead, sequence)
                self._faults.run_began(sequence)

        return enter

    def end(self, honest: Callable[..., None]) -> Callable[..., None]:
        def end(ahead: RunsAhead, load: PageLoad, ledger: Any) -> None:
            run = next((run for run in ahead._runs.values() if run.load is load), None)
            if run is None:
                honest(ahead, load, ledger)
                return
            known = "proves" if load.is_whole else self._why or "takes back"
            with self._edges.around(f"{'has lost' if run.has_left else known} a run ahead"):
                honest(ahead, load, ledger)

        return end

    def because(self, honest: Callable[..., Any], why: str) -> Callable[..., Any]:
        """Loads that end within this call end for this reason."""

        def call(tier: HostTier) -> Any:
            with self._reason(why):
                return honest(tier)

        return call

    def must_wait(self, honest: Callable[..., bool]) -> Callable[..., bool]:
        def must_wait(tier: HostTier, sequence: Sequence, *arguments: Any) -> bool:
            waits = tier._loads._waiting
            before = waits.get(sequence.number)
            must = honest(tier, sequence, *arguments)
            load = waits.get(sequence.number)
            if load is not before and any(run.load is load and not run.has_left for run in tier.ahead._runs.values()):
                with self._edges.around("lets another wait for a run ahead"):
                    pass
            return must

        return must_wait

    @contextmanager
    def _reason(self, why: str) -> Iterator[None]:
        with patched.object(self, "_why", why):
            yield


def watch_runs_ahead(patch: Callable[[Any, str, Any], None], faults: CopyFaults) -> None:
    """Let every scheduler reach these edges, and the faults know when. `patch(object, name, value)` must undo itself after the
    simulation."""
    ahead = _Ahead(faults)
    patch(RunsAhead, "enter", ahead.enter(RunsAhead.enter))
    patch(RunsAhead, "end", ahead.end(RunsAhead.end))
    patch(HostTier, "give_up_late", ahead.because(HostTier.give_up_late, "gives up"))
    patch(HostTier, "clear", ahead.because(HostTier.clear, "forgets"))
    patch(HostTier, "_must_wait_here", ahead.must_wait(HostTier._must_wait_here))
