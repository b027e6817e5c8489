"""Which layers a stage holds, and how much memory that is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.shard import rank_parameters, shard_model
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.pipeline.stage import Stage, split_layers, stage_of, stage_parameters
from gpu_workers.runner.memory_estimate import cpu_weight_bytes, estimate_cuda_rank, kv_token_bytes
from tests.support.supervisor.known_models import LLAMA_8B, LLAMA_70B, SMOLLM2

MODELS = st.sampled_from([LLAMA_8B, LLAMA_70B, SMOLLM2])


def counts(model: ModelConfig, size: int) -> list[int]:
    return [len(layers) for layers in split_layers(model, size)]


@pytest.mark.parametrize(
    ("model", "size", "expected"),
    [
        (LLAMA_8B, 1, [32]),
        (LLAMA_8B, 2, [17, 15]),  # the head takes as long as 2.4 layers
        (LLAMA_8B, 4, [9, 9, 8, 6]),
        (LLAMA_70B, 2, [41, 39]),
        (SMOLLM2, 2, [19, 11]),  # of 8 layers
        (replace(SMOLLM2, n_layers=3), 3, [1, 1, 1]),
    ],
)
def test_the_split(model: ModelConfig, size: int, expected: list[int]) -> None:
    assert counts(model, size) == expected


@given(model=MODELS, n_layers=st.integers(1, 40), data=st.data())
def test_every_layer_is_in_one_stage(model: ModelConfig, n_layers: int, data: st.DataObject) -> None:
    model, size = replace(model, n_layers=n_layers), data.draw(st.integers(1, n_layers))
    assert [layer for layers in split_layers(model, size) for layer in layers] == list(range(n_layers))
    assert all(counts(model, size))


@pytest.mark.parametrize("size", [0, 33])
def test_a_wrong_number_of_stages_is_an_error(size: int) -> None:
    with pytest.raises(ValueError, match=rf"expected 1 \.\. 32 \(the number of layers\), got {size}"):
        split_layers(LLAMA_8B, size)


@given(model=MODELS, tp=st.sampled_from([1, 3]), rank=st.integers(0, 2), pp=st.integers(1, 8))
def test_stages_hold_all_parameters_once(model: ModelConfig, tp: int, rank: int, pp: int) -> None:
    """But the norm before the head, which every stage has, and a tied table, which the last stage has too."""
    shard = shard_model(model, rank % tp, tp)
    stages = [stage_parameters(model, stage_of(model, index, pp), shard) for index in range(pp)]
    table = shard.vocabulary_rows * model.hidden if model.tied_embeddings and pp > 1 else 0
    assert sum(stages) == rank_parameters(model, shard) + table + (pp - 1) * model.hidden


def test_two_stages_halve_what_a_rank_needs() -> None:
    one, two = (estimate_cuda_rank(LLAMA_70B, 1, "bfloat16", 8192, 256, pp=pp) for pp in (1, 2))
    assert two.weight_bytes == pytest.approx(one.weight_bytes / 2, rel=0.03)
    assert two.kv_token_bytes == one.kv_token_bytes * 41 // 80
    assert kv_token_bytes(LLAMA_70B, 1, "bfloat16", pp=2) == two.kv_token_bytes


@pytest.mark.parametrize("quantization", ["none", "int8", "int4", "fp8"])
@pytest.mark.parametrize("model", [LLAMA_8B, SMOLLM2])
def test_all_stages_together_weigh_what_the_model_weighs(model: ModelConfig, quantization: str) -> None:
    one, four = (cpu_weight_bytes(model, 1, "float32", quantization, pp) for pp in (1, 4))  # pyright: ignore[reportArgumentType]
    table = model.vocabulary * model.hidden * 4 if model.tied_embeddings else 0
    assert four == pytest.approx(one + table, rel=1e-4)


def test_the_first_and_the_last_of_several() -> None:
    first, middle, last = (stage_of(LLAMA_8B, index, 3) for index in range(3))
    assert [(stage.is_first, stage.is_last) for stage in (first, middle, last)] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    alone = Stage(0, 1, range(32))
    assert alone.is_first
    assert alone.is_last
