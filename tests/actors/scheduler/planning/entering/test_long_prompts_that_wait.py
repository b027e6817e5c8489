"""A prompt that waits for pages: its own are looked up for a displacement only if somebody gives way to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.scheduler.planning.entering.displacement import Displacement
from actors.scheduler.planning.plan_builder import PlanBuilder
from actors.scheduler.planning.step_times import StepTimes
from actors.scheduler.sequences.sequence import Sequence
from tests.support.planner_bench import PlannerBench


@pytest.mark.parametrize(("priority", "is_looked_up"), [(0, False), (-1, True)])
def test_pages_of_a_waiting_prompt_are_looked_up_only_if_somebody_gives_way(
    priority: int, is_looked_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = PlannerBench({"plans_in_flight": 1}, n_pages=20, n_slots=4)
    for first in (100, 300):
        bench.add(range(first, first + 60), max_tokens=60)
    for _ in range(30):  # more than they have to generate before they may give way
        assert bench.plan() is not None
        bench.apply()
    bench.add(range(500, 740), priority=priority)
    looked_up: list[int] = []

    def page_contents(self: Sequence, n_pages: int) -> Iterator[tuple[int, int, bytes]]:
        looked_up.append(self.number)
        return iter(())

    monkeypatch.setattr(Sequence, "page_contents", page_contents)
    assert bench.gang.ledger is not None
    displacement = Displacement(bench.queues, bench.gang.ledger, lambda sequence: None)
    displacement.make_room(PlanBuilder(StepTimes()), lambda sequence: True)
    assert bool(looked_up) is is_looked_up
