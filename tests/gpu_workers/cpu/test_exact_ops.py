"""A model with stored integers computes what it computes with floats: bit by bit where the order of sums is the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs

from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model, load_model_runner
from gpu_workers.settings import Quantization, WorkerSettings
from tests.support.kernels.exact_model import write_exact_model
from tests.support.workers.deterministic_runs import differences, make_cases
from tests.support.workers.paged_loop import PagedLoop, PagedSequence

pytestmark = pytest.mark.slow

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_exact_model(tmp_path_factory.mktemp("exact"))


def model_of(folder: Path, quantization: Quantization) -> Model:
    placement = WeightPlacement(torch.device("cpu"), torch.float32, quantization=quantization)
    return build_model(read_model_config(folder), folder, placement, deterministic=True)


def test_deterministic_logits_are_those_of_floats_bit_by_bit(folder: Path) -> None:
    """Also with the weight of this model that is not made of integers."""
    logits = []
    for form in ("exact", "none"):
        loop, sequences = PagedLoop(model_of(folder, form)), [PagedSequence(list(range(3, 3 + n))) for n in (150, 25, 7)]
        steps = ((90, 25, 3), (1, 0, 1), (59, 0, 1))
        rows = [[(one, n) for one, n in zip(sequences, counts, strict=True) if n] for counts in steps]
        logits.append([loop.run(step) for step in rows])
    assert all(one.equal(other) for one, other in zip(*logits, strict=True))


def test_deterministic_tokens_are_the_same_alone_crowded_and_continued(folder: Path) -> None:
    settings = WorkerSettings(
        model_folder=str(folder), n_slots=12, max_step_tokens=256, kv_memory_bytes=8 << 20, threads=1, deterministic=True
    )
    with capture_logs() as logs:
        runner = load_model_runner(settings, folder, lambda phase, fraction: None)
        assert differences(runner, make_cases((1, 30, 45), 320), 20) == []
    assert [line["event"] for line in logs] == [], "steps of few tokens run as programs"
    assert runner.capacity().device == "cpu, float32, exact weights, deterministic"


def test_a_rank_stores_integers_unless_it_is_told_otherwise() -> None:
    assert WorkerSettings().quantization_name == "exact"
    assert WorkerSettings(dtype="bfloat16").quantization_name == "none"
    assert WorkerSettings(device="cuda").quantization_name == "none"
