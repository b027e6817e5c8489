"""Seeds of the simulation: whoever dies or pauses, and whenever, every accepted request ends with the oracle's tokens, once."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gpu_workers.process.gang_agreement import EpochId
from messages.steps import Result
from messages.wire.arrays import int32s
from tests.support.depth import DEPTH, seeds_of_block
from tests.support.simulation.edges import Count, Fault
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.seeds import coverage, many_seeds
from tests.support.simulation.seeds.many_seeds import run_seeds
from tests.support.simulation.threads import SimulatedStepThread
from tests.support.simulation.world import simulate

_SEEDS_PER_TEST = 20
_hit: Count = Counter()  # in this process, and at the end in others
_N_TESTS = 1 if DEPTH == 1 else 100  # 2,000 seeds in `make test-long`
_SEEK_S = 300.0
_HALVES = ("even blocks", "odd blocks")  # one for each process of `make test-long`


@pytest.fixture(scope="module")
def hits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all test processes of this run: a file of each says which pairs its seeds have hit."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "hits"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.seeds
@pytest.mark.parametrize("block", [pytest.param(n, marks=pytest.mark.xdist_group(_HALVES[n % 2])) for n in range(_N_TESTS)])
def test_every_promise_holds(block: int, hits: Path) -> None:
    for seed in seeds_of_block(block, _SEEDS_PER_TEST):
        outcome = simulate(seed)
        _hit.update(outcome.hit)
        assert not outcome.problems, f"replay with: python -m tests.support.simulation {seed}"
    (hits / f"{os.getpid()}.new").write_text(json.dumps([(edge, fault.value) for edge, fault in _hit]))
    (hits / f"{os.getpid()}.new").rename(hits / f"{os.getpid()}.json")


@pytest.mark.long
@pytest.mark.xdist_group(_HALVES[0])
def test_every_fault_hits_every_edge_once(hits: Path) -> None:
    """Pairs that the seeds above, here and in the other process, have not hit are sought, each in runs of its own, as far as
    the time goes: this test has what the tests of servers leave of the cores."""
    for file in hits.glob("*.json"):
        _hit.update((edge, Fault(value)) for edge, value in json.loads(file.read_text()))
    never, until_s = [], time.monotonic() + _SEEK_S
    for pair in coverage.missing(_hit):
        if time.monotonic() > until_s:
            break
        has_hit = False
        for outcome in coverage.seek(pair):
            assert not outcome.problems, f"seed {outcome.seed}, seeking {pair}"
            has_hit = pair in outcome.hit
        if not has_hit:
            never.append(pair)
    assert not never


def test_a_server_stops_while_a_rolling_restart_waits_for_a_process_to_end() -> None:
    assert not simulate(40553).problems, "the custodian was stopped as it handed over"


def test_a_damaged_journal_loses_the_run_in_which_a_response_was_written() -> None:
    assert not simulate(107645).problems, "the next run had the same number, and the response went on at a wrong byte"


def test_a_damaged_journal_has_lost_the_order_of_several_sequences() -> None:
    assert not simulate(303512).problems, "a response went on in the middle of an event"
    assert not simulate(408989).problems, "the damage was found by the second process after those that had shown the events"


@pytest.mark.parametrize("seed", [404843, 409234])
def test_a_gateway_dies_before_its_run_of_a_request_is_recorded(seed: int) -> None:
    assert not simulate(seed).problems, "the custodian had been told of the run, so the next process cut the connection"


def test_two_faults_of_a_device_that_meet_one_sequence_condemn_nobody() -> None:
    assert not simulate(303340).problems, "a refused plan and a step that hung, with one sequence at the gang"


def test_seeds_are_the_same_in_other_processes_with_other_hashes_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    shown = {one.seed: one.digest for one in run_seeds(range(3, 5), n_jobs=2)}
    assert shown == {seed: simulate(seed).digest for seed in (3, 4)}


def test_a_run_that_fails_or_does_not_end_is_a_problem_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> Any:
        if seed == 1:
            raise ValueError("of the simulation")
        while True:
            pass

    monkeypatch.setattr(many_seeds, "simulate", run)
    monkeypatch.setattr(many_seeds, "_SEED_S", 0.01)
    failed, endless = run_seeds(range(1, 3), n_jobs=1)
    assert "of the simulation" in failed.problems[0]
    assert "DoesNotEnd" in endless.problems[0]


def test_one_wrong_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    results = 0

    def spoil(self: SimulatedStepThread, epoch: EpochId, result: Result) -> None:
        nonlocal results
        results += 1
        ids = np.where(np.arange(len(result.ids)) == 0, (result.ids + 1) % 1000, result.ids) if results == 7 else result.ids
        honest(self, epoch, msgspec.structs.replace(result, ids=int32s(ids)))

    honest = SimulatedStepThread._result
    monkeypatch.setattr(SimulatedStepThread, "_result", spoil)
    found = 0
    for seed in range(3, 9):
        results = 0
        found += any(re.search("wrong (token|text)", problem) for problem in simulate(seed, Scenario(n_deaths=0)).problems)
    assert found >= 3  # in some seeds the token was for a client that has left
