"""The schedule of a campaign: every fault of every role comes once before any comes again."""

from __future__ import annotations

import random

from ops.bench.campaign.fault_schedule import FaultSchedule, Harm, Phase, ScheduledFault, coverage
from supervisor.drill.faults import FaultKind


def test_every_fault_comes_once_before_any_comes_again() -> None:
    schedule = FaultSchedule(["worker", "supervisor"], list(Harm), random.Random(1))
    first, second = [schedule.draw(Phase.DECODE) for _ in range(5)], [schedule.draw(Phase.DECODE) for _ in range(5)]
    assert len(set(first)) == 5
    assert set(first) == set(second)
    assert ScheduledFault("supervisor", Phase.DECODE, Harm.FREEZE) not in first, "its parent waits ten seconds"
    assert schedule.draw(Phase.LOADING).phase is Phase.LOADING


def test_every_role_comes_in_a_phase_before_any_comes_again() -> None:
    roles = ["worker", "standby", "parent", "supervisor"]
    for seed in range(20):
        schedule = FaultSchedule(roles, list(Harm), random.Random(seed))
        for phase in Phase:
            assert {schedule.draw(phase).role for _ in roles} == set(roles)


def test_a_fault_that_could_not_be_inflicted_comes_again() -> None:
    schedule = FaultSchedule(["worker", "vault"], [Harm.KILL, Harm.PAUSE], random.Random(3))
    missed = schedule.draw(Phase.PREFILL)
    schedule.put_back(missed)
    following = [schedule.draw(Phase.PREFILL) for _ in range(4)]
    assert missed in following
    assert {fault.role for fault in following[:2]} == {"worker", "vault"}


def test_a_supervisor_that_becomes_the_parent_is_not_killed() -> None:
    """Supervisor and parent would be dead at once, which nobody promises to survive."""
    schedule = FaultSchedule(["parent"], list(Harm), random.Random(1))
    assert {schedule.draw(Phase.LOADING).harm for _ in range(3)} == {Harm.PAUSE}
    assert not FaultSchedule(["parent"], [Harm.KILL], random.Random(1)).has(Phase.LOADING)


def test_the_coverage_counts_each_fault() -> None:
    kill = ScheduledFault("worker", Phase.PREFILL, Harm.KILL)
    assert coverage([kill, ScheduledFault("worker", Phase.PREFILL, Harm.PAUSE), kill]) == {
        "worker": {"prefill": {"kill": 2, "pause": 1}}
    }
    assert kill.label == "kill worker, prefill"
    assert Harm.FREEZE.fault("worker/0.0").kind is FaultKind.PAUSE
