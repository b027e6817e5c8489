"""Two stages of two ranks over gloo give what one rank gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_workers.layers.tensor_group import SingleRank, TensorGroup
from gpu_workers.model_store.rope import Rope
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.pipeline.link import DistributedLink, StagedGroup, StageParts, StagePlace, open_stages, stage_group
from gpu_workers.pipeline.stage import stage_of
from gpu_workers.runner.model_loading import build_model
from tests.support.ranks.rank_pool import RankPool
from tests.support.workers.paged_loop import PagedLoop, PagedSequence

GEMMA3 = Gemma3Config(
    "gemma3_text", 3, 36, 6, 3, 8, 50, 101, 256, tied_embeddings=True,
    window=20, is_sliding=(True, False, True), query_scalar=8.0, rope=Rope(1e6), sliding_rope=Rope(),
)  # fmt: skip
QWEN3 = LlamaConfig("qwen3", 3, 36, 6, 3, 8, 50, 101, 256, qk_norm=True)
CONFIGS = {"qwen3": QWEN3, "gemma3": GEMMA3}
CPU, DEADLINE_S = torch.device("cpu"), 60.0
TP, PP = 2, 2


def _logits(name: str, group: TensorGroup | StagedGroup) -> np.ndarray:
    model = build_model(CONFIGS[name], Path(), WeightPlacement(CPU, torch.float32), group=group, load_format="random")
    loop = PagedLoop(model)
    sequences = [PagedSequence(list(range(3, 3 + n))) for n in (40, 25, 7)]
    steps = [
        loop.run([(sequences[0], 30)]),
        loop.run([(sequences[0], 1), (sequences[1], 25), (sequences[2], 4)]),
        loop.run([(sequences[0], 1), (sequences[2], 1)]),
    ]
    return torch.cat(steps).numpy()


def _rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    place = StagePlace(rank % TP, TP, rank // TP, PP)
    groups = open_stages(place, folder / "rendezvous", CPU, DEADLINE_S)
    group, link = stage_group(place, groups, CPU), DistributedLink(place, groups, CPU)
    assert group.least(10 + rank) == 10
    if place.stage:
        for n in (3, 0, 5):  # long before the receiver asks for them
            link.send_ids(torch.arange(n) + place.rank)
    for name, config in CONFIGS.items():
        staged = StagedGroup(group, StageParts(stage_of(config, place.stage, PP), link))
        np.save(folder / f"{name}{rank}.npy", _logits(name, staged))
    if not place.stage:
        awaited = [link.expect_ids(n) for n in (3, 0, 5)]
        assert [ids.wait().tolist() for ids in awaited] == [[i + place.rank for i in range(n)] for n in (3, 0, 5)]
    assert group.least(rank) == 0  # nobody leaves while another one still receives
    group.close()


@pytest.mark.slow
def test_two_stages_of_two_ranks_equal_one_rank(rank_pool: RankPool, tmp_path: Path) -> None:
    ranks = rank_pool.start(TP * PP, _rank, tmp_path)
    expected = {name: _logits(name, SingleRank()) for name in CONFIGS}
    for rank in ranks:
        rank.result(2 * DEADLINE_S)
    for name, logits in expected.items():
        got = [np.load(tmp_path / f"{name}{rank}.npy") for rank in range(TP * PP)]
        assert [len(one) for one in got] == [0, 0, len(logits), len(logits)]
        np.testing.assert_array_equal(got[2], got[3])
        np.testing.assert_allclose(got[2], logits, atol=1e-5, rtol=1e-4)


def test_places_count_stage_by_stage() -> None:
    place = StagePlace(rank=1, tp=2, stage=2, pp=3)
    assert place.world_rank == 5
    assert replace(place, stage=0).world_rank == 1
