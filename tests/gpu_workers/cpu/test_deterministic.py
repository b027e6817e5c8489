"""With `deterministic` a sequence has the same logits and tokens, bit for bit, alone, in any batch, in any cut of a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.page_format import INT4
from gpu_workers.layers.tensor_group import FixedOrderGroup, SingleRank
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.model_loading import build_model, load_model_runner
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.settings import Quantization, WorkerSettings
from messages.errors import ConfigError
from tests.support.depth import dear_examples
from tests.support.workers.deterministic_runs import differences, make_cases
from tests.support.workers.paged_loop import PagedLoop, PagedSequence, build_step

pytestmark = pytest.mark.slow

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)

CONFIG = LlamaConfig("qwen3", 2, 128, 4, 2, 64, 192, 256, 512, qk_norm=True)
N_TOKENS = 60


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small products by many threads take much longer on a busy machine."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@cache
def model_of(dtype: torch.dtype, page_dtype: torch.dtype | None = None, quantization: Quantization = "none") -> Model:
    placement = WeightPlacement(torch.device("cpu"), dtype, quantization=quantization)
    return build_model(CONFIG, Path(), placement, deterministic=True, page_dtype=page_dtype, load_format="random")


def tokens_of(seed: int, n: int = N_TOKENS) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, CONFIG.vocabulary, (n,), generator=generator).tolist()


@cache
def logits_alone(dtype: torch.dtype, page_dtype: torch.dtype | None, quantization: Quantization) -> torch.Tensor:
    """[N_TOKENS, vocabulary]: behind each token, when the tokens are computed one by one."""
    loop, sequence = PagedLoop(model_of(dtype, page_dtype, quantization)), PagedSequence(tokens_of(0))
    return torch.cat([loop.run([(sequence, 1)]) for _ in range(N_TOKENS)])


@dear_examples(12)
@given(
    st.data(),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([None, torch.int8, INT4]),
    st.sampled_from(["none", "int8", "int4"]),
)
def test_logits_have_the_same_bits_in_any_batch_and_any_cut(
    data: st.DataObject, dtype: torch.dtype, page_dtype: torch.dtype | None, quantization: Quantization
) -> None:
    expected = logits_alone(dtype, page_dtype, quantization)
    loop, sequence = PagedLoop(model_of(dtype, page_dtype, quantization)), PagedSequence(tokens_of(0))
    others = [PagedSequence(tokens_of(seed)) for seed in range(1, 9)]
    while sequence.computed < N_TOKENS:
        count = data.draw(st.integers(1, N_TOKENS - sequence.computed), "tokens")
        beside = [(o, data.draw(st.integers(0, N_TOKENS - o.computed), "tokens of another")) for o in others]
        rows = [(sequence, count), *((o, n) for o, n in beside if n)]
        place = sorted(rows, key=lambda row: row[1] != 1).index((sequence, count))
        assert loop.run(rows)[place].equal(expected[sequence.computed - 1])


def test_without_the_flag_the_bits_depend_on_the_batch() -> None:
    """Or the test before would show nothing."""
    model = build_model(CONFIG, Path(), WeightPlacement(torch.device("cpu"), torch.float32), load_format="random")
    one, whole = PagedLoop(model), PagedLoop(model)
    sequence = PagedSequence(tokens_of(0))
    single = torch.cat([one.run([(sequence, 1)]) for _ in range(N_TOKENS)])[-1]
    assert not whole.run([(PagedSequence(tokens_of(0)), N_TOKENS)])[0].equal(single)


def test_bfloat16_has_the_same_bits_without_the_flag_where_the_processor_multiplies_it() -> None:
    machine = this_machine()
    if machine is None or not machine.has_bf16_dot:
        pytest.skip("needs a processor with AVX512-BF16")
    model = build_model(CONFIG, Path(), WeightPlacement(torch.device("cpu"), torch.bfloat16), load_format="random")
    one, whole = PagedLoop(model), PagedLoop(model)
    sequence = PagedSequence(tokens_of(0, 200))
    single = torch.cat([one.run([(sequence, 1)]) for _ in range(200)])[-1]
    assert whole.run([(PagedSequence(tokens_of(0, 200)), 200)])[0].equal(single)


@pytest.fixture(scope="module", params=["none", "int8"])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    """Through the programs of the CPU and everything else that a worker has."""
    folder = tmp_path_factory.mktemp("random")
    keys = {
        "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 32,
        "num_key_value_heads": 2, "intermediate_size": 192, "vocab_size": 256, "max_position_embeddings": 512,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(keys))
    settings = WorkerSettings(
        model_folder=str(folder), load_format="random", n_slots=12, max_step_tokens=256, kv_memory_bytes=8 << 20,
        deterministic=True, threads=1, quantization=request.param,
    )  # fmt: skip
    return load_model_runner(settings, folder, lambda phase, fraction: None)


def test_tokens_and_logprobs_are_the_same_alone_crowded_and_continued(runner: ModelRunner) -> None:
    """Continued as after a death: what was decoded is a prompt then, in one chunk."""
    assert differences(runner, make_cases((1, 5, 30, 45, 62, 17, 3, 90), CONFIG.vocabulary), 20) == []


def test_the_capacity_says_it(runner: ModelRunner) -> None:
    assert runner.capacity().device in ("cpu, float32, deterministic", "cpu, float32, int8 weights, deterministic")


class ThreeRanks(SingleRank):
    """Rank 0 of three whose parts are x, 2 x and 3 x."""

    size = 3

    def all_gather_last(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, n] -> [T, 3 n]."""
        return torch.cat((x, 2 * x, 3 * x), -1)


def test_three_ranks_are_added_in_their_order() -> None:
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert FixedOrderGroup(ThreeRanks()).all_reduce(x).equal((x + 2 * x) + 3 * x)


def test_what_has_no_kernel_is_refused() -> None:
    parts = model_of(torch.float32).parts
    step = build_step([(PagedSequence(tokens_of(0), pages=[*range(4)]), 30)])
    with pytest.raises(ConfigError, match=r"worker\.deterministic: expected false .* attention with a window"):
        parts.attention.prepare(step, window=20)
    with pytest.raises(ConfigError, match="a gate with GELU"):
        parts.ops.gelu_mul(torch.zeros(2, 64))
    with pytest.raises(ConfigError, match="a weight of 250 x 128"):
        parts.ops.pack_linear(torch.zeros(250, 128))
    with pytest.raises(ConfigError, match=r"worker\.deterministic: .* got torch\.float16"):
        build_model(
            CONFIG, Path(), WeightPlacement(torch.device("cpu"), torch.float16), deterministic=True, load_format="random"
        )
