"""Dense attention, written out token by token, and random steps and pages to compare other attention with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from hypothesis import strategies as st

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import quantise_fp8, quantise_fp8_keys, quantise_int8, scales_of
from messages.steps import PAGE_TOKENS
from tests.support.workers.paged_loop import PagedSequence, build_step

if TYPE_CHECKING:  # needs llvmlite, which tests of other attention do without
    from gpu_workers.cpu.attention import CpuStep

HEAD_DIM = 8
rows_of_a_step = st.lists(
    st.tuples(st.integers(0, 90), st.one_of(st.just(1), st.integers(1, 40))), min_size=1, max_size=9
)  # (computed before, tokens now)


def paged_rows(
    rows: list[tuple[int, int]], kv_heads: int, head_dim: int = HEAD_DIM, dtype: torch.dtype = torch.float32
) -> tuple[StepTensors, torch.Tensor, torch.Tensor]:
    """A step of these rows, (computed before, tokens now), and one layer's pages among those of others, with random keys and
    values in a scattered order."""
    generator = torch.Generator().manual_seed(3)
    rows = sorted(rows, key=lambda row: row[1] != 1)
    sizes = [-(-(start + count) // PAGE_TOKENS) for start, count in rows]
    order = torch.randperm(sum(sizes) + 2, generator=generator).tolist()
    sequences = [PagedSequence([0] * (start + count), start) for start, count in rows]
    for sequence, size in zip(sequences, sizes, strict=True):
        sequence.pages, order = order[:size], order[size:]
    kv = KvPages.allocate(KvShape(3, kv_heads, head_dim, dtype), sum(sizes) + 2, "cpu")
    kv.storage.copy_(torch.randn(kv.storage.shape, generator=generator))
    step = build_step([(s, count) for s, (_, count) in zip(sequences, rows, strict=True)])
    return step, kv.keys[1], kv.values[1]


def dense_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: StepTensors, scale: float, window: int = 10_000
) -> torch.Tensor:
    """One token at a time, nothing shared with what is tested."""
    out = torch.empty_like(q)
    shared = q.shape[1] // k.shape[2]
    for row in range(step.n_rows):
        pages = step.page_table[row].long()
        keys, values = (x[pages].flatten(0, 1).repeat_interleave(shared, 1) for x in (k, v))
        for index in range(int(step.row_counts[row])):
            token, seen = int(step.row_offsets[row]) + index, int(step.row_starts[row]) + index + 1
            first = max(0, seen - window)
            weights = torch.einsum("hd,khd->hk", q[token], keys[first:seen]).mul(scale).softmax(-1)
            out[token] = torch.einsum("hk,khd->hd", weights, values[first:seen])
    return out


def quantised(k: torch.Tensor, v: torch.Tensor, dtype: torch.dtype = torch.int8) -> tuple[torch.Tensor, torch.Tensor]:
    """k, v [n_pages, PAGE_TOKENS, n_kv_heads, head_dim] of a float dtype -> the same as 8-bit pages of one layer of several."""
    n_pages, _, n_kv_heads, head_dim = k.shape
    kv = KvPages.allocate(KvShape(3, n_kv_heads, head_dim, dtype), n_pages, k.device)
    quantise = (quantise_int8, quantise_int8) if dtype == torch.int8 else (quantise_fp8_keys, quantise_fp8)
    for pages, plain, quantise_one in zip((kv.keys[1], kv.values[1]), (k, v), quantise, strict=True):
        numbers, scales = quantise_one(plain)
        pages.copy_(numbers)
        scales_of(pages).copy_(scales.transpose(1, 2))
    return kv.keys[1], kv.values[1]


def widened(pages: torch.Tensor) -> torch.Tensor:
    """Pages of one layer, of 8 bits a number -> the numbers that they stand for, float32."""
    return pages.float() * scales_of(pages).transpose(1, 2)[..., None].float()


def assert_alike_in_any_company(step: CpuStep, q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor) -> None:
    """Each token of a step of compiled kernels has the same bits alone as beside the others. q [T, n_heads, head_dim]."""
    together = step.attend(q, k_pages, v_pages, 0.4)
    for unit in range(len(q)):
        only = slice(unit, unit + 1)
        alone = replace(step, places=step.places[only], rows=step.rows[only], n_keys=step.n_keys[only])
        place = int(step.places[unit])
        assert alone.attend(q, k_pages, v_pages, 0.4)[place].equal(together[place])
