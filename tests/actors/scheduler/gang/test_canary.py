"""The canary: what a gang computes first after a death, and which sequences a gang that dies of it blames."""

from __future__ import annotations

from actors.scheduler.sequences.sequence import Sequence
from messages.generation.replica_state import ReplicaCondition
from messages.generation.sequences import Suspicion
from messages.steps import StepFailed
from messages.wire.arrays import int32s
from tests.support.scheduler.gang_bench import GangBench


def bench_with_suspect() -> tuple[GangBench, Sequence]:
    """A gang that comes back after two deaths with the same sequence, and asks for the canary."""
    bench = GangBench()
    sequence = bench.submit()
    bench.plan()
    bench.die()
    bench.plan()
    bench.passes_canary = False
    bench.die()
    assert bench.gang.probation.is_on_probation(sequence)
    return bench, sequence


def test_no_request_is_computed_and_the_replica_is_down_until_the_canary_is() -> None:
    bench, sequence = bench_with_suspect()
    for _ in range(2):  # its prefill and one decode step
        assert bench.gang.condition is ReplicaCondition.DOWN
        assert sequence not in bench.plan()
        assert bench.plan() == []
        bench.answer()
        bench.gang.audit()
    assert bench.gang.condition is ReplicaCondition.UP
    assert bench.plan() == [sequence]


def test_a_gang_that_dies_of_the_canary_clears_everybody() -> None:
    bench, sequence = bench_with_suspect()
    for _ in range(10):
        assert bench.plan()
        assert bench.die() == []
        assert bench.gang.condition is ReplicaCondition.SICK
        assert not bench.gang.probation.has_suspects
    bench.compute_canary()
    assert bench.gang.condition is ReplicaCondition.UP
    assert bench.plan() == [sequence]


def test_a_gang_that_is_killed_during_the_canary_proves_nothing() -> None:
    bench, sequence = bench_with_suspect()
    bench.plan()
    bench.die("killed")
    assert bench.gang.condition is ReplicaCondition.DOWN
    assert bench.gang.probation.is_on_probation(sequence)
    assert sequence not in bench.plan()  # the canary is still to be computed


def test_a_refused_canary_is_the_gangs_fault() -> None:
    bench, _ = bench_with_suspect()
    bench.plan()
    epoch = bench.gang.tracker.epoch
    assert bench.gang.refuse(StepFailed(epoch=epoch, step=1, reason="no", suspects=int32s([0]))) == []
    assert bench.gang.condition is ReplicaCondition.SICK
    assert not bench.gang.probation.has_suspects


def test_a_refusal_that_names_nobody_may_be_the_devices_fault() -> None:
    """A plan of one sequence is refused as a whole, and the next step fails: a device that is broken does both."""
    bench = GangBench()
    bench.passes_canary = False
    sequence = bench.submit()
    bench.plan()
    assert bench.refuse() == []
    assert sequence not in bench.plan()
    assert bench.die() == []
    assert bench.gang.condition is ReplicaCondition.SICK
    assert not bench.gang.probation.has_suspects
    bench.compute_canary()
    assert bench.plan() == [sequence]


def test_a_refusal_that_names_a_sequence_asks_for_no_canary() -> None:
    bench = GangBench()
    bench.passes_canary = False
    bench.submit()
    bench.submit()
    bench.plan()
    assert bench.refuse(1) == []
    assert bench.gang.condition is ReplicaCondition.UP


def test_a_kill_from_outside_asks_for_no_canary() -> None:
    bench = GangBench()
    bench.passes_canary = False
    sequence = bench.submit()
    bench.plan()
    bench.die("killed")
    assert bench.gang.condition is ReplicaCondition.UP
    assert bench.plan() == [sequence]


def test_the_canary_leaves_no_page_behind() -> None:
    bench, _ = bench_with_suspect()
    bench.compute_canary()
    assert bench.gang.ledger is not None
    assert bench.gang.ledger.statistics().held == 0
    assert bench.gang.ledger.statistics().cached == 0


def test_suspicion_goes_on_where_another_replica_left_it() -> None:
    bench = GangBench()
    sequence = bench.submit()
    bench.gang.probation.arrived(sequence, Suspicion(deaths=3, certain=1, reach=6, passed=0))
    assert bench.gang.probation.is_on_probation(sequence)
    (suspect,) = bench.gang.probation.suspects_of("gateway/0")
    assert suspect.suspicion == Suspicion(deaths=3, certain=1, reach=6, passed=0)
    assert bench.plan() == [sequence]
    assert bench.die() == [(sequence, "quarantined")]


def test_suspicion_from_another_replica_ends_when_its_place_is_passed() -> None:
    bench = GangBench()
    sequence = bench.submit(5)
    bench.gang.probation.arrived(sequence, Suspicion(deaths=3, certain=1, reach=6, passed=0))
    for _ in range(2):
        bench.plan()
        bench.answer()
    assert not bench.gang.probation.has_suspects
