"""Seeds of the simulation: whoever dies or pauses, and whenever, every accepted request ends with the oracle's tokens, once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gpu_workers.process.gang_agreement import EpochId
from messages.steps import Result
from messages.wire.arrays import int32s
from tests.support.depth import DEPTH
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.threads import SimulatedStepThread
from tests.support.simulation.world import simulate

_SEEDS_PER_TEST = 20
_N_TESTS = 5 if DEPTH == 1 else 10 * DEPTH


@pytest.mark.seeds
@pytest.mark.parametrize("block", range(_N_TESTS))
def test_every_promise_holds(block: int) -> None:
    for seed in range(block * _SEEDS_PER_TEST, (block + 1) * _SEEDS_PER_TEST):
        outcome = simulate(seed)
        assert not outcome.problems, f"replay with: python -m tests.support.simulation {seed}"


def test_a_seed_replays_in_another_process_with_other_hashes_of_texts() -> None:
    assert _digest_in_process(seed=3, hash_seed=1) == simulate(3).digest


def _digest_in_process(seed: int, hash_seed: int) -> str:
    command = [sys.executable, "-m", "tests.support.simulation", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    shown = subprocess.run(command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, check=True, text=True)
    return re.findall("digest ([0-9a-f]+)", shown.stdout)[0]


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
