"""Steps as one native call against the same steps call by call: the same bits, in logits and in pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.batch.device_state import DeviceState, allocate_device_state
from gpu_workers.batch.step_arrays import StepArrays, build_step
from gpu_workers.batch.step_tensors import build_batch
from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.page_format import INT4
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.tensor_group import SingleRank
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.backend import plain_backend
from gpu_workers.runner.model_loading import build_model
from messages.steps import PAGE_TOKENS, Plan
from messages.wire.arrays import int32s

if this_machine() is None or torch.backends.cpu.get_cpu_capability() != "AVX512":
    pytest.skip("needs kernels for products, which read what oneDNN packs for AVX-512", allow_module_level=True)

from gpu_workers.graphs.cpu_programs import CpuPrograms, cpu_programs
from tests.support.depth import dear_examples

pytestmark = pytest.mark.slow

LLAMA = LlamaConfig("llama", 2, 128, 6, 2, 32, 192, 320, 256)
CONFIGS = {
    "llama": LLAMA,
    "one kv head": replace(LLAMA, n_heads=2, n_kv_heads=1, head_dim=64, tied_embeddings=True),
    "qwen2": replace(LLAMA, model_type="qwen2", qkv_bias=True),
    "qwen3": replace(LLAMA, model_type="qwen3", qk_norm=True),
}
N_SLOTS, MAX_LENGTH = 64, 96
N_PAGES = N_SLOTS * MAX_LENGTH // PAGE_TOKENS


@pytest.fixture(autouse=True, scope="module")
def _two_threads() -> Iterator[None]:
    """oneDNN chooses its layout for the threads that there are; with two it is the one that kernels read, for any shape."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Twins:
    """A model with two sets of pages: one for programs, one for single calls."""

    def __init__(self, name: str, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
        placement = WeightPlacement(torch.device("cpu"), dtype)
        self.model: Model = build_model(CONFIGS[name], Path(), placement, load_format="random", page_dtype=page_dtype)
        self.state: DeviceState = allocate_device_state(N_SLOTS, MAX_LENGTH, N_PAGES, "cpu")
        generator = torch.Generator().manual_seed(0)
        self.state.tokens.copy_(torch.randint(0, 320, self.state.tokens.shape, generator=generator))
        self.kv, self.plain_kv = (KvPages.allocate(self.model.kv_shape, N_PAGES + 1, "cpu") for _ in range(2))
        sizes = self.kv.storage.shape
        is_plain = page_dtype is None
        random = torch.randn(sizes, generator=generator) if is_plain else torch.randint(0, 60, sizes, generator=generator)
        self.kv.storage.copy_(random)  # bytes below 60 are small scales too
        self.programs: CpuPrograms | None = cpu_programs(self.model, self.kv, self.state)

    def scatter_pages(self, seed: int) -> None:
        pages = np.random.default_rng(seed).permutation(N_PAGES).reshape(N_SLOTS, -1).astype(np.int32)
        self.state.pages[:N_SLOTS].copy_(torch.from_numpy(pages))

    def step(self, rows: list[tuple[int, int]], seed: int) -> StepArrays:
        """rows: (start, count), all tokens of them sampled, in slots of any order."""
        starts, counts = (int32s(column) for column in zip(*rows, strict=True))
        none = int32s([])
        plan = Plan(
            epoch=0, step=0, n_steps=1, new=[], new_tokens=none, page_slots=none, page_indices=none, page_ids=none,
            row_slots=int32s(np.random.default_rng(seed).permutation(N_SLOTS)[: len(rows)]),
            row_starts=starts, row_counts=counts, row_samples=int32s([1] * len(rows)),
            draft_counts=int32s(counts - 1), draft_ids=int32s([1] * int((counts - 1).sum())),
        )  # fmt: skip
        return build_step(plan, self.state.pages.numpy())

    def both(self, step: StepArrays) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the program and of single calls, on equal pages."""
        assert self.programs is not None
        self.plain_kv.storage.copy_(self.kv.storage)
        with torch.inference_mode():
            got = self.programs.run(step)
            assert got is not None
            assert got.greedy.equal(torch.from_numpy(got.logits.float().numpy().argmax(-1)))
            return got.logits, self.plain(step)

    def plain(self, step: StepArrays) -> torch.Tensor:
        return self.model.logits(self.model.forward(build_batch(step, self.state).tensors, self.plain_kv))


@cache
def twins_of(name: str, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> Twins:
    return Twins(name, dtype, page_dtype)


def fits(dtype: torch.dtype) -> bool:
    machine = this_machine()
    return dtype == torch.float32 or (machine is not None and machine.has_bf16_dot)


ROWS = st.lists(st.tuples(st.integers(0, MAX_LENGTH - 6), st.sampled_from([1, 1, 1, 2, 5])), min_size=1, max_size=20)


@dear_examples(50)
@given(
    ROWS,
    st.sampled_from(list(CONFIGS)),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([None, torch.int8, INT4]),
    st.integers(0, 9),
)
def test_the_same_bits_as_single_calls(
    rows: list[tuple[int, int]], name: str, dtype: torch.dtype, page_dtype: torch.dtype | None, seed: int
) -> None:
    if not fits(dtype) or sum(count for _, count in rows) > 64:
        return
    name = "one kv head" if page_dtype == INT4 else name  # whose heads are wide enough
    twins = twins_of(name, dtype, page_dtype)
    twins.scatter_pages(seed)
    got, expected = twins.both(twins.step(rows, seed))
    assert got.equal(expected)
    assert twins.kv.storage.equal(twins.plain_kv.storage)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_rows_and_threads(dtype: torch.dtype, threads: int) -> None:
    if not fits(dtype):
        pytest.skip("the kernel computes few rows of bfloat16 here")
    twins = Twins("llama", dtype)
    twins.scatter_pages(threads)
    torch.set_num_threads(threads)
    twins.programs = cpu_programs(twins.model, twins.kv, twins.state)
    try:
        for n in (*range(1, 10), 30, 63, 64, 1, 64):
            got, expected = twins.both(twins.step([(row, 1) for row in range(n)], n))
            assert got.equal(expected)
    finally:
        torch.set_num_threads(2)
    assert twins.kv.storage.equal(twins.plain_kv.storage)


def test_a_program_runs_again_and_reads_what_changed() -> None:
    twins = twins_of("llama", torch.float32)
    twins.scatter_pages(0)
    for start in range(0, 90, 7):
        twins.state.tokens.add_(1).remainder_(320)
        got, expected = twins.both(twins.step([(start, 1), (89 - start, 3)], start))
        assert got.equal(expected)


def test_what_is_no_such_step_is_left_alone() -> None:
    twins = twins_of("llama", torch.float32)
    assert twins.programs is not None
    before = twins.kv.storage.clone()
    many = twins.step([(0, 5)] * 13, 0)
    long_row = twins.step([(3, 17)], 0)
    step = twins.step([(3, 1), (9, 4)], 0)
    prompt = replace(step, sample_index=step.sample_index[:3], sample_slots=step.sample_slots[:3])
    for unfit in (many, long_row, prompt):
        assert twins.programs.run(unfit) is None
    torch.set_num_threads(3)
    try:
        assert twins.programs.run(step) is None
    finally:
        torch.set_num_threads(2)
    assert twins.programs.run(step) is not None
    assert not twins.kv.storage.equal(before)


def test_a_model_whose_weights_torch_computes_with_has_no_programs() -> None:
    odd = replace(LLAMA, ffn=200)  # not blocks of 64 outputs
    model = build_model(odd, Path(), WeightPlacement(torch.device("cpu"), torch.float32), load_format="random")
    twins = twins_of("llama", torch.float32)
    programs = cpu_programs(model, KvPages.allocate(model.kv_shape, N_PAGES + 1, "cpu"), twins.state)
    assert programs is not None
    with torch.inference_mode():
        assert programs.run(twins.step([(3, 1)], 0)) is None
        assert programs.run(twins.step([(3, 1)], 0)) is None


def test_plain_back_ends_have_no_programs() -> None:
    placement, shard = WeightPlacement(torch.device("cpu"), torch.float32), shard_model(LLAMA, 0, 1)
    backend = plain_backend(placement, LLAMA, shard)
    parts = RankParts(shard, backend.ops, backend.attention, SingleRank())
    model = load_model(LLAMA, Path(), placement, parts, load_format="random")
    twins = twins_of("llama", torch.float32)
    assert cpu_programs(model, twins.kv, twins.state) is None
