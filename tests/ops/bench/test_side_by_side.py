"""Measurements with several servers: work is shared out, a part that fails leaves the others alone, results are added up."""

from __future__ import annotations

from collections import Counter

from ops.bench.campaign.fault_schedule import Harm, Phase, ScheduledFault
from ops.bench.campaign.part import CampaignPart, PartResult
from ops.bench.leaks.held_resources import Allowance
from ops.bench.leaks.part import WatchPart
from ops.bench.leaks.watch import WatchPlan
from ops.bench.own_server import free_ports
from ops.bench.side_by_side import FailedPart, side_by_side
from supervisor.drill.figures import Tally

WHOLE = CampaignPart("hash-chain", 5.0, 6, 8, 120, 7, (), tuple(Harm), False, 0.5, 60.0, 60.0, (), seed=3, port=0)


def divide(divisor: int) -> float:
    return 12 / divisor


def test_a_part_that_fails_leaves_the_others_alone() -> None:
    assert side_by_side(divide, [3, 0, 4]) == [4.0, FailedPart(1, "ZeroDivisionError: division by zero"), 3.0]


def test_faults_requests_and_restarts_are_shared_out() -> None:
    ports = free_ports(3)
    parts = WHOLE.split(ports)
    assert [part.n_faults for part in parts] == [3, 2, 2]
    assert len({part.seed for part in parts}) == len({part.port for part in parts}) == 3
    watches = WatchPart(WatchPlan(100, 10, 4, 0, Allowance(0, 0, 0, 0, 0)), (), 0).split(ports)
    assert sum(part.plan.n_requests for part in watches) >= 100
    assert sum(part.plan.n_restarts for part in watches) >= 10


def test_what_parts_have_found_is_added_up() -> None:
    kill, pause = ScheduledFault("worker", Phase.DECODE, Harm.KILL), ScheduledFault("worker", Phase.DECODE, Harm.PAUSE)
    found = PartResult()
    found.add(PartResult([Tally(kill.label, 1, 2, 1, 1, 0, [10.0], 0.0)], [kill], Counter(right=1, lost=1), ["cut"], ["a.log"]))
    found.add(PartResult([Tally(kill.label, 1, 1, 1, 0, 0, [30.0], 0.0)], [kill, pause], Counter(right=4), ["cut"]))
    (tally,) = found.tallies
    assert (tally.rounds, tally.streams, tally.row.pause_max_ms) == (2, 3, 30.0)
    assert (found.outcomes["right"], found.outcomes["lost"], len(found.inflicted)) == (5, 1, 3)
    assert (found.errors, found.logs) == (["cut"], ["a.log"])
