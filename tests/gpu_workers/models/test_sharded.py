"""Two ranks over gloo give what one rank gives, where the heads do not divide evenly."""

from __future__ import annotations

import multiprocessing
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.layers.tensor_group import DistributedGroup, SingleRank, TensorGroup
from gpu_workers.model_store.rope import Rope
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from tests.support.workers.paged_loop import PagedLoop, PagedSequence

GEMMA3 = Gemma3Config(
    "gemma3_text", 3, 36, 9, 3, 8, 50, 101, 256, tied_embeddings=True,
    window=20, is_sliding=(True, False, True), query_scalar=8.0, rope=Rope(1e6), sliding_rope=Rope(),
)  # fmt: skip
CONFIGS = {"qwen3": LlamaConfig("qwen3", 2, 36, 9, 3, 8, 50, 101, 256, qk_norm=True), "gemma3": GEMMA3}
DEADLINE_S = 60.0


def _logits(name: str, group: TensorGroup) -> np.ndarray:
    torch.set_num_threads(1)
    model = build_model(
        CONFIGS[name], Path(), WeightPlacement(torch.device("cpu"), torch.float32), group=group, load_format="random"
    )
    loop = PagedLoop(model)
    sequences = [PagedSequence(list(range(3, 3 + n))) for n in (40, 25, 7)]
    steps = [
        loop.run([(sequences[0], 30)]),
        loop.run([(sequences[0], 1), (sequences[1], 25), (sequences[2], 4)]),
        loop.run([(sequences[0], 1), (sequences[2], 1)]),
    ]
    return torch.cat(steps).numpy()


def _rank(name: str, rank: int, folder: Path) -> None:
    warnings.simplefilter("error", FutureWarning)  # it would be a line in the log of every rank
    group = DistributedGroup.join(rank, 2, folder / "rendezvous", torch.device("cpu"), DEADLINE_S)
    assert group.least(10 + rank) == 10
    np.save(folder / f"rank{rank}.npy", _logits(name, group))
    group.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_two_ranks_equal_one(name: str, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=_rank, args=(name, rank, tmp_path), daemon=True) for rank in range(2)]
    for process in ranks:
        process.start()
    expected = _logits(name, SingleRank())
    for process in ranks:
        process.join(DEADLINE_S)
        assert process.exitcode == 0
    first, second = (np.load(tmp_path / f"rank{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, expected, atol=1e-5, rtol=1e-4)
