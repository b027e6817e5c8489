"""Two ranks over gloo give what one rank gives, where the heads do not divide evenly."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.tensor_group import DistributedGroup, SingleRank, TensorGroup
from gpu_workers.model_store.rope import Rope
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model
from tests.support.ranks.rank_pool import RankPool
from tests.support.workers.paged_loop import PagedLoop, PagedSequence

GEMMA3 = Gemma3Config(
    "gemma3_text", 3, 36, 9, 3, 8, 50, 101, 256, tied_embeddings=True,
    window=20, is_sliding=(True, False, True), query_scalar=8.0, rope=Rope(1e6), sliding_rope=Rope(),
)  # fmt: skip
QWEN3 = LlamaConfig("qwen3", 2, 36, 9, 3, 8, 50, 101, 256, qk_norm=True)
CONFIGS = {"qwen3": QWEN3, "gemma3": GEMMA3, "qwen3 int8": QWEN3}
DEADLINE_S = 60.0


def _logits(name: str, group: TensorGroup) -> np.ndarray:
    torch.set_num_threads(1)
    placement = WeightPlacement(torch.device("cpu"), torch.float32, quantization="int8" if "int8" in name else "none")
    model = build_model(CONFIGS[name], Path(), placement, group=group, load_format="random")
    loop = PagedLoop(model)
    sequences = [PagedSequence(list(range(3, 3 + n))) for n in (40, 25, 7)]
    steps = [
        loop.run([(sequences[0], 30)]),
        loop.run([(sequences[0], 1), (sequences[1], 25), (sequences[2], 4)]),
        loop.run([(sequences[0], 1), (sequences[2], 1)]),
    ]
    return torch.cat(steps).numpy()


def _rank(rank: int, name: str, folder: Path) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # it would be a line in the log of every rank
        group = DistributedGroup.join(rank, 2, folder / "rendezvous", torch.device("cpu"), DEADLINE_S)
        assert group.least(10 + rank) == 10
        logits = _logits(name, group)
        group.close()
    return logits


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_two_ranks_equal_one(name: str, rank_pool: RankPool, tmp_path: Path) -> None:
    """Groups of integers begin with each rank's part, so their scales are others than those of one rank."""
    if "int8" in name and this_machine() is None:
        pytest.skip("needs llvmlite and a processor that kernels are written for")
    ranks = rank_pool.start(2, _rank, name, tmp_path)
    expected = _logits(name, SingleRank())
    first, second = (rank.result(DEADLINE_S) for rank in ranks)
    np.testing.assert_array_equal(first, second)
    near = 0.05 * np.abs(expected).max() if "int8" in name else 1e-5
    np.testing.assert_allclose(first, expected, atol=near, rtol=1e-4)
