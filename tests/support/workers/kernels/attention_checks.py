"""Paged attention against a plain float32 softmax over gathered keys, on ragged rows; plain functions as in kernel_checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gpu_workers.batch.step_tensors import DeviceTiles, StepTensors
from gpu_workers.cuda.kernels.attention.tiles import list_tiles
from gpu_workers.cuda.kernels.launch import EARLY_HEAD_DIM
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.page_format import FP8, INT4, format_of
from gpu_workers.layers.rotary import cos_sin_table
from gpu_workers.layers.torch_ops import KvTarget, TorchOps
from messages.steps import PAGE_TOKENS
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES, Check, assert_near, poisoned_memory
from tests.support.workers.kernels.page_checks import (
    assert_pages_near,
    check_rope_and_store,
    computed_in,
    numbers_in,
    random_pages,
)

# (position of the first token, tokens)
DECODE_ROWS = (
    (36, 1),
    (15, 1),
    (0, 1),
    (199, 1),
    (16, 1),
    (1030, 1),
    (64, 1),
    (500, 1),
)
MIXED_ROWS = ((36, 1), (0, 1), (0, 40), (30, 5), (17, 1), (100, 170), (0, 16), (511, 33))


def make_step(rows: Sequence[tuple[int, int]], n_decode: int, device: torch.device) -> tuple[StepTensors, int]:
    """A step of rows (start, count) on pages in random order; returns it and the number of pages."""
    starts, counts = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    ends = starts + counts
    per_row = -(-int(ends.max()) // PAGE_TOKENS)
    n_pages = len(rows) * per_row + 1
    table = torch.randperm(n_pages)[: n_pages - 1].view(len(rows), per_row).to(device, torch.int32)
    positions = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
    n_tokens = len(positions)
    step = StepTensors(
        token_ids=torch.zeros(n_tokens, dtype=torch.int64, device=device),
        positions=torch.from_numpy(positions).to(device, torch.int64),
        slot_mapping=torch.zeros(n_tokens, dtype=torch.int64, device=device),
        page_table=table,
        lengths=torch.from_numpy(ends).to(device),
        n_decode=n_decode,
        row_starts=starts,
        row_counts=counts,
        row_offsets=(np.cumsum(counts) - counts).astype(np.int32),
        sample_index=torch.arange(n_tokens, device=device),
    )
    return step, n_pages


def plain_attention(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, step: StepTensors, scale: float
) -> torch.Tensor:
    """The definition, row by row in float32: [T, n_heads, head_dim]."""
    out = []
    keys, values = numbers_in(k_pages, v_pages)
    group = q.shape[1] // k_pages.shape[2]
    for row in range(step.n_rows):
        start, count, offset = (int(a[row]) for a in (step.row_starts, step.row_counts, step.row_offsets))
        length = start + count
        k, v = (
            pages[step.page_table[row].long()].flatten(0, 1)[:length].repeat_interleave(group, 1) for pages in (keys, values)
        )
        scores = torch.einsum("thd,shd->hts", q[offset : offset + count].float(), k) * scale
        hidden = torch.arange(length, device=q.device) > torch.arange(start, length, device=q.device)[:, None]
        out.append(torch.einsum("hts,shd->thd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v))
    return torch.cat(out)


def check_decode(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Every number of splits, also more splits than blocks of keys."""
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        step, n_pages = make_step(DECODE_ROWS, len(DECODE_ROWS), device)
        q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype, page_dtype)
        expected = plain_attention(q, k_pages, v_pages, step, head_dim**-0.5)
        attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, page_dtype=page_dtype)
        prepared = attention.prepare(step)
        for splits, least in ((1, 0), (2, 0), (8, 0), (32, 0), (8, 64), (32, 64), (4, 512), (8, 4096)):
            chosen = replace(prepared, decode=replace(prepared.decode, splits=splits, least=least))
            with poisoned_memory():
                got = chosen.attend(q, k_pages, v_pages, head_dim**-0.5)
            assert_near(got, expected, computed_in(dtype, page_dtype))


def check_decode_of_new_keys(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Rotation, storing and attention in one kernel: outputs and pages of the three references one after the other, also for
    rows of length 0, which get zeros and write nothing."""
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        step, n_pages = make_step(DECODE_ROWS, len(DECODE_ROWS), device)
        step.lengths[2] = 0
        qkv = torch.randn((step.n_tokens, n_heads + 2 * n_kv_heads, head_dim), device=device).to(dtype)
        q, k, v = qkv.split((n_heads, n_kv_heads, n_kv_heads), 1)
        kv = random_pages(KvShape(3, n_kv_heads, head_dim, page_dtype or dtype), n_pages, device)
        cos_sin = cos_sin_table(1e4 ** -(torch.arange(0, head_dim, 2, device=device) / head_dim), 4096)
        pages = step.page_table.gather(1, (step.positions // PAGE_TOKENS)[:, None])[:, 0].long()
        slots = pages * PAGE_TOKENS + step.positions % PAGE_TOKENS
        wanted = KvPages.over(kv.shape, kv.storage.clone())
        target = KvTarget(step.positions, cos_sin, wanted.keys[1], wanted.values[1], slots)
        rotated = TorchOps().rope_and_store(q, k, v, target)
        expected = plain_attention(rotated, wanted.keys[1], wanted.values[1], step, head_dim**-0.5)
        expected[2] = 0
        wanted.storage.view(torch.uint8)[pages[2]] = kv.storage.view(torch.uint8)[pages[2]]
        attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, page_dtype=page_dtype)
        prepared = attention.prepare(step)
        before = kv.storage.clone()
        for splits, least in ((1, 0), (8, 0), (32, 64), (8, 64), (4, 512), (8, 4096)):
            kv.storage.copy_(before)
            target = KvTarget(step.positions, cos_sin, kv.keys[1], kv.values[1], slots)
            chosen = replace(prepared, decode=replace(prepared.decode, splits=splits, least=least))
            with poisoned_memory():
                got = chosen.store_and_attend(_NoOps(), q, k, v, target, head_dim**-0.5)
            if page_dtype is not None:  # numbers that are rounded to their other neighbour would be seen in the result
                expected = plain_attention(rotated, kv.keys[1], kv.values[1], step, head_dim**-0.5)
                expected[2] = 0
            assert_near(got, expected, computed_in(dtype, page_dtype))
            assert_pages_near(kv, wanted, dtype)


def check_early_decode(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """One row whose pages are read early: as `check_decode_of_new_keys`, at every length. The kernel in front is torch's, which
    lets nothing start before its end."""
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        if head_dim > EARLY_HEAD_DIM:
            continue
        attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, follows_late=True, page_dtype=page_dtype)
        for row in DECODE_ROWS:
            step, n_pages = make_step([row], 1, device)
            qkv = torch.randn((1, n_heads + 2 * n_kv_heads, head_dim), device=device).to(dtype)
            q, k, v = qkv.split((n_heads, n_kv_heads, n_kv_heads), 1)
            kv = random_pages(KvShape(2, n_kv_heads, head_dim, page_dtype or dtype), n_pages, device)
            cos_sin = cos_sin_table(1e4 ** -(torch.arange(0, head_dim, 2, device=device) / head_dim), 4096)
            slots = step.page_table[0, step.positions // PAGE_TOKENS].long() * PAGE_TOKENS + step.positions % PAGE_TOKENS
            wanted = KvPages.over(kv.shape, kv.storage.clone())
            target = KvTarget(step.positions, cos_sin, wanted.keys[1], wanted.values[1], slots)
            rotated = TorchOps().rope_and_store(q, k, v, target)
            expected = plain_attention(rotated, wanted.keys[1], wanted.values[1], step, head_dim**-0.5)
            prepared = attention.prepare(step)
            assert prepared.is_early
            before = kv.storage.clone()
            for splits in (2, 8, 32):
                kv.storage.copy_(before)
                target = KvTarget(step.positions, cos_sin, kv.keys[1], kv.values[1], slots)
                chosen = replace(prepared, decode=replace(prepared.decode, splits=splits))
                with poisoned_memory():
                    got = chosen.store_and_attend(_NoOps(), q, k, v, target, head_dim**-0.5)
                if page_dtype is not None:
                    expected = plain_attention(rotated, kv.keys[1], kv.values[1], step, head_dim**-0.5)
                assert_near(got, expected, computed_in(dtype, page_dtype))
                assert_pages_near(kv, wanted, dtype)


class _NoOps(TorchOps):
    """For a back end that must do it alone."""

    def rope_and_store(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
        """Raises: AssertionError."""
        raise AssertionError("expected one kernel")


def check_padding(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Rows of length 0 give zeros, whatever their pages hold."""
    step, n_pages = make_step(DECODE_ROWS, len(DECODE_ROWS), device)
    q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, HEAD_SHAPES["smollm2"], device, dtype, page_dtype)
    step.lengths[1] = step.lengths[4] = 0
    attention = TritonAttention(9, 3, 64, dtype)
    prepared = attention.prepare(step)
    for splits in (1, 8):
        with poisoned_memory():
            got = replace(prepared, decode=replace(prepared.decode, splits=splits)).attend(q, k_pages, v_pages, 0.125)
        assert not got[[1, 4]].any()
        assert got[[0, 2, 3, 5]].isfinite().all()


def check_many_rows(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """So many rows and kv heads that other shapes are chosen, one for each number of splits."""
    n_heads, n_kv_heads, head_dim = HEAD_SHAPES["llama-8b"]
    for copies in (2, 6, 13):
        rows = copies * DECODE_ROWS
        step, n_pages = make_step(rows, len(rows), device)
        q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype, page_dtype)
        attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, page_dtype=page_dtype)
        with poisoned_memory():
            got = attention.prepare(step).attend(q, k_pages, v_pages, head_dim**-0.5)
        assert_near(got, plain_attention(q, k_pages, v_pages, step, head_dim**-0.5), computed_in(dtype, page_dtype))


def check_mixed(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Decode rows, first chunks and later chunks of any length in one step."""
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        for rows, n_decode in ((MIXED_ROWS, 2), (MIXED_ROWS[2:], 0)):
            step, n_pages = make_step(rows, n_decode, device)
            q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype, page_dtype)
            attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, page_dtype=page_dtype)
            with poisoned_memory():
                got = attention.prepare(step).attend(q, k_pages, v_pages, head_dim**-0.5)
            assert_near(got, plain_attention(q, k_pages, v_pages, step, head_dim**-0.5), computed_in(dtype, page_dtype))


def check_device_tiles(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Tiles that only the device knows, among tiles that do nothing, over a table in which the rows stand elsewhere."""
    n_heads, n_kv_heads, head_dim = HEAD_SHAPES["smollm2"]
    step, n_pages = make_step(MIXED_ROWS, 2, device)
    q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype, page_dtype)
    attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, page_dtype=page_dtype)
    rows = np.arange(2, step.n_rows)
    starts, counts, offsets = (column[rows] for column in (step.row_starts, step.row_counts, step.row_offsets))
    tiles = list_tiles(rows + 10, starts, counts, offsets, attention.tile_tokens)
    padded = torch.from_numpy(np.concatenate((tiles, np.zeros_like(tiles)))).to(device)
    table = torch.cat((torch.full((10, step.page_table.shape[1]), n_pages - 1, device=device), step.page_table)).int()
    captured = replace(step, page_table=step.page_table[:2], device_tiles=DeviceTiles(padded, table))
    with poisoned_memory():
        got = attention.prepare(captured).attend(q, k_pages, v_pages, head_dim**-0.5)
    assert_near(got, plain_attention(q, k_pages, v_pages, step, head_dim**-0.5), computed_in(dtype, page_dtype))


def check_far_pages(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """Pages whose offsets pass 2^31 numbers; on devices with the memory for them."""
    if device.type != "cuda" or dtype == torch.float32:
        return
    n_heads, n_kv_heads, head_dim = HEAD_SHAPES["llama-8b"]
    kv = KvPages.allocate(KvShape(32, n_kv_heads, head_dim, page_dtype or dtype), 2300, device)
    keys, values = kv.keys[31], kv.values[31]
    for rows, n_decode in ((((36, 1), (99, 1)), 2), (((36, 1), (0, 40), (30, 50)), 1)):
        near, _ = make_step(rows, n_decode, device)
        step = replace(near, page_table=kv.n_pages - 1 - near.page_table)
        pages = step.page_table.flatten().long().unique()
        slots = (pages[:, None] * PAGE_TOKENS + torch.arange(PAGE_TOKENS, device=device)).flatten()
        k, v = (torch.randn((len(slots), n_kv_heads, head_dim), device=device).to(dtype) for _ in range(2))
        format_of(keys.dtype).store(keys, values, slots, k, v)
        q = torch.randn((step.n_tokens, n_heads, head_dim), device=device).to(dtype)
        got = (
            TritonAttention(n_heads, n_kv_heads, head_dim, dtype, page_dtype=page_dtype)
            .prepare(step)
            .attend(q, keys, values, head_dim**-0.5)
        )
        assert_near(got, plain_attention(q, keys, values, step, head_dim**-0.5), dtype)


def random_qkv(
    n_tokens: int,
    n_pages: int,
    heads: tuple[int, int, int],
    device: torch.device,
    dtype: torch.dtype,
    page_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [n_tokens, n_heads, head_dim], and the pages of one layer. heads: n_heads, n_kv_heads, head_dim."""
    n_heads, n_kv_heads, head_dim = heads
    q = torch.randn((n_tokens, n_heads, head_dim), device=device).to(dtype)
    kv = random_pages(KvShape(3, n_kv_heads, head_dim, page_dtype or dtype), n_pages, device)
    return q, kv.keys[1], kv.values[1]


ATTENTION_CHECKS: dict[str, Check] = {
    "rope_and_store": check_rope_and_store,
    "decode": check_decode,
    "decode_of_new_keys": check_decode_of_new_keys,
    "early_decode": check_early_decode,
    "padding": check_padding,
    "many_rows": check_many_rows,
    "mixed": check_mixed,
    "device_tiles": check_device_tiles,
    "far_pages": check_far_pages,
}
SMALL_PAGE_CHECKS: dict[str, Check] = {
    f"{kind} {name}": partial(check, page_dtype=page_dtype)
    for kind, page_dtype in (("fp8", FP8), ("int8", torch.int8), ("int4", INT4))
    for name, check in (
        ("rope and store", check_rope_and_store),
        ("decode", check_decode),
        ("decode of new keys", check_decode_of_new_keys),
        ("early decode", check_early_decode),
        ("padding", check_padding),
        ("many rows", check_many_rows),
        ("mixed", check_mixed),
        ("device tiles", check_device_tiles),
        ("far pages", check_far_pages),
    )
}
