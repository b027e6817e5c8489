"""Refused plans: whom they name, what becomes of the named and of the others; which deaths make suspects, and what a suspect
needs to come free."""

from __future__ import annotations

from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.scheduler.sequences.sequence import Sequence
from messages.lifecycle.lifecycle import Cause
from tests.support.scheduler.gang_bench import GangBench


def test_the_one_that_is_named_twice_ends_and_the_others_go_on() -> None:
    bench = GangBench()
    good, bad = bench.submit(), bench.submit()
    assert bench.plan() == [good, bad]
    assert bench.refuse(1) == []
    assert bench.plan() == [bad]  # apart at once: it was named alone
    assert bench.refuse(0) == [(bad, "failed")]
    assert bench.plan() == [good]
    bench.answer()
    assert good.n_generated == 1


def test_a_slot_is_named_as_of_the_plan_that_failed() -> None:
    bench = GangBench(n_slots=1)
    first, second = bench.submit(), bench.submit()
    assert bench.plan() == [first]
    bench.gang.release(first)  # cancelled while its plan is on the way: its slot has a new tenant
    assert bench.plan() == [second]
    assert second.slot == 0
    assert bench.refuse(0) == []
    assert not bench.gang.probation.has_suspects


def test_a_preempted_sequence_is_still_the_one_that_was_named() -> None:
    bench = GangBench()
    first, second = bench.submit(), bench.submit()
    assert bench.plan() == [first, second]
    bench.queues.preempt(second)
    assert bench.refuse(1) == []
    assert bench.gang.probation.is_on_probation(second)
    assert not bench.gang.probation.is_on_probation(first)


def test_refusals_that_name_nobody_are_tried_one_by_one() -> None:
    bench = GangBench()
    good, bad, other = bench.submit(), bench.submit(), bench.submit()
    ended: list[tuple[Sequence, str]] = []
    n_refused = 0
    while not ended:
        rows = bench.plan()
        if bad in rows:
            ended = bench.refuse()
            n_refused += 1
        else:
            bench.answer()
    assert (ended, n_refused) == ([(bad, "failed")], 4)
    while not (good.n_generated and other.n_generated):
        assert bench.plan()
        bench.answer()
    assert set(bench.plan()) == {good, other}


def test_plans_that_are_refused_whoever_is_in_them_end_all_at_last() -> None:
    bench = GangBench()
    sequences = {bench.submit().number for _ in range(4)}
    for _ in range(100):
        if not bench.plan():
            break
        sequences -= {sequence.number for sequence, _ in bench.refuse()}
    assert not sequences


def test_two_deaths_put_the_rows_in_flight_apart_and_a_step_past_the_place_frees_them() -> None:
    bench = GangBench()
    one, two = bench.submit(), bench.submit()
    for n_suspects in (0, 2):
        assert bench.plan() == [one, two]
        assert bench.plan() == [one, two]
        assert bench.die() == []
        assert len(bench.gang.probation) == n_suspects
    late = bench.submit()
    assert bench.plan() == [one]
    assert bench.plan() == []  # one step at a time
    bench.answer()
    assert bench.plan() == [one]  # it had come one position further than this when the gang died
    bench.answer()
    assert not bench.gang.probation.is_on_probation(one)
    assert bench.plan() == [two]
    bench.answer()
    assert bench.plan() == [two]
    bench.answer()
    assert set(bench.plan()) == {one, two, late}


def test_progress_between_two_deaths_alone_starts_the_count_again() -> None:
    bench = GangBench()
    sequence = bench.submit(100)  # two chunks
    for _ in range(2):
        assert bench.plan() == bench.plan() == [sequence]
        assert bench.die() == []
    for n_chunks in (0, 1):
        for _ in range(n_chunks):
            assert bench.plan() == [sequence]
            bench.answer()
        assert bench.plan() == [sequence]
        assert bench.die() == []
    bench.plan()
    assert bench.die() == []  # in a chunk that was computed well before: not its fault
    bench.plan()
    bench.answer()
    bench.plan()
    assert bench.die() == [(sequence, "quarantined")]


def test_the_innocent_end_of_a_suspect_leaves_nothing_behind() -> None:
    bench = GangBench()
    sequence = bench.submit()
    for _ in range(2):
        bench.plan()
        bench.die()
    assert bench.gang.probation.is_active
    bench.gang.release(sequence)
    assert not bench.gang.probation.is_active
    assert not bench.gang.probation.has_suspects


EVIDENCE = [(cause,) for cause in get_args(Cause) if cause not in ("killed", "ended", "gang")]


@pytest.mark.parametrize("causes", [*EVIDENCE, ("crashed", "gang"), ("gang", "hung"), ("faulted", "faulted", "gang")])
def test_four_deaths_that_a_computation_can_cause_are_proof(causes: tuple[Cause, ...]) -> None:
    bench = GangBench()
    good, bad = bench.submit(), bench.submit()
    ended: list[tuple[Sequence, str]] = []
    n_deaths = 0
    while not ended and n_deaths < 9:
        if bad in bench.plan():
            ended = bench.die(*causes)
            n_deaths += 1
        else:
            bench.answer()
    assert (ended, n_deaths) == ([(bad, "quarantined")], 4)
    assert bench.plan() == [good]


@pytest.mark.parametrize("causes", [("killed",), ("killed", "gang"), ("faulted", "killed"), ("gang", "killed", "gang")])
def test_a_rank_that_was_killed_makes_nobody_suspect_however_the_others_died(causes: tuple[Cause, ...]) -> None:
    bench = GangBench()
    both = [bench.submit(), bench.submit()]
    for _ in range(20):
        assert bench.plan() == bench.plan() == both
        assert bench.die(*causes) == []
        assert not bench.gang.probation.has_suspects


def test_what_was_computed_when_the_first_rank_died_counts_when_the_last_is_dead() -> None:
    bench = GangBench()
    sequence = bench.submit()
    for _ in range(3):
        bench.plan()
        bench.die("crashed", "gang")
    bench.plan()
    assert bench.gang.rank_died("crashed", is_last=False) == []
    bench.gang.release(sequence)  # cancelled before the second rank is dead
    assert bench.gang.rank_died("gang", is_last=True) == []
    assert not bench.gang.probation.has_suspects


def test_ranks_that_die_before_the_gang_can_compute_blame_nobody() -> None:
    bench = GangBench()
    bench.submit()
    bench.plan()
    bench.die("crashed")
    assert bench.die("crashed", "gang") == []  # no plan was sent since
    assert not bench.gang.probation.is_active


Event = Literal["plan", "answer", "killed", "crashed"]


@given(st.lists(st.sampled_from(["plan", "plan", "answer", "killed"]), max_size=60), st.integers(1, 6))
def test_kills_in_any_number_and_rhythm_blame_nobody(events: list[Event], n_sequences: int) -> None:
    bench = GangBench()
    for _ in range(n_sequences):
        bench.submit()
    for event in events:
        if event == "plan":
            bench.plan()
        elif event == "answer" and bench.has_plans:
            bench.answer()
        elif event == "killed":
            assert bench.die("killed") == []
        assert not bench.gang.probation.has_suspects


@given(st.lists(st.booleans(), min_size=40, max_size=40), st.integers(0, 4))
def test_kills_between_its_crashes_neither_save_a_poison_nor_speed_its_quarantine(is_killed: list[bool], n_others: int) -> None:
    bench = GangBench(n_slots=8)
    others, bad = [bench.submit() for _ in range(n_others)], bench.submit()
    ended: list[tuple[Sequence, str]] = []
    n_crashes, kills = 0, iter(is_killed)
    while not ended and n_crashes <= 4:
        rows = bench.plan()
        if next(kills, False):
            assert bench.die("killed") == []
        elif bad in rows:
            ended = bench.die()
            n_crashes += 1
        else:
            bench.answer()
    assert (ended, n_crashes) == ([(bad, "quarantined")], 4)
    assert set(bench.plan()) <= set(others)


def test_a_death_that_is_proven_to_be_a_crash_makes_the_memory_suspect_whatever_was_said_before() -> None:
    bench = GangBench()
    bench.gang.rank_died("gang", is_last=True)
    bench.gang.note_proof("crashed")
    assert bench.gang.begin_epoch().is_memory_suspect


def test_two_faults_of_a_device_condemn_nobody_who_was_alone_at_both() -> None:
    bench = GangBench()
    alone = bench.submit()
    bench.plan()
    assert bench.refuse() == [], "a refusal that names nobody"
    assert bench.plan() == [alone]
    assert bench.die("hung") == []
    assert bench.plan() == [alone]
    assert bench.die("hung") == [(alone, "quarantined")]
