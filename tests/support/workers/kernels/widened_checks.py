"""Prompts over pages whose keys are widened or copied first, against the definition of attention; plain functions as in
kernel_checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from gpu_workers.batch.step_tensors import DeviceTiles
from gpu_workers.cuda.kernels.attention.tiles import list_tiles
from gpu_workers.cuda.kernels.attention.widened_keys import allocate_widened
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.page_format import FP8, INT4
from tests.support.workers.kernels.attention_checks import make_step, plain_attention, random_qkv
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES, Check, assert_near, poisoned_memory
from tests.support.workers.kernels.page_checks import computed_in

ROWS = ((36, 1), (0, 1), (100, 170), (30, 5), (0, 128), (640, 129), (0, 16))  # (position of the first token, tokens)
ROOMS = {64: 0, 320: 1, 448: 2, 4096: 3}  # for widened keys, and how many rows have their keys there
SHAPES = {name: HEAD_SHAPES[name] for name in ("llama-8b", "smollm2")} | {"wide": (2, 1, 256), "narrow": (4, 2, 32)}


def widening_attention(
    heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device, room: int, **options: Any
) -> TritonAttention:
    """heads: n_heads, n_kv_heads, head_dim. The memory for widened keys holds NaN. options: more arguments."""
    n_heads, n_kv_heads, head_dim = heads
    widened = allocate_widened(n_kv_heads, room, head_dim, dtype, device).fill_(float("nan"))
    return TritonAttention(n_heads, n_kv_heads, head_dim, dtype, widened=widened, **options)


def check_prompts(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype) -> None:
    """Chunks whose keys all fit, some of which fit, none of which fit; beside rows of one and of few tokens."""
    step, n_pages = make_step(ROWS, 2, device)
    for heads in SHAPES.values() if device.type == "cuda" else (SHAPES["narrow"], SHAPES["wide"]):
        q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, heads, device, dtype, page_dtype)
        expected = plain_attention(q, k_pages, v_pages, step, heads[2] ** -0.5)
        for room, n_rows in ROOMS.items():
            prepared = widening_attention(heads, dtype, device, room).prepare(step)
            assert prepared.long_rows is not None
            tiles = prepared.long_rows.tiles
            assert len(tiles[tiles[:, 5] >= 0, 5].unique()) == n_rows
            with poisoned_memory():
                got = prepared.attend(q, k_pages, v_pages, heads[2] ** -0.5)
            assert_near(got, expected, computed_in(dtype, page_dtype))


def check_flash(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None) -> None:
    """Rows that FlashAttention takes beside others, of several lengths; pages of this dtype, None: of the model's."""
    rows = (*ROWS, (512, 700), (0, 300))
    step, n_pages = make_step(rows, 2, device)
    for heads in (SHAPES["llama-8b"], SHAPES["smollm2"]) if device.type == "cuda" else (SHAPES["narrow"],):
        q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, heads, device, dtype, page_dtype or dtype)
        expected = plain_attention(q, k_pages, v_pages, step, heads[2] ** -0.5)
        for room, n_rows in (ROOMS | {4096: 5}).items():
            attention = widening_attention(heads, dtype, device, room, flash=True, page_dtype=page_dtype)
            prepared = attention.prepare(step)
            assert (len(prepared.flash.n_tokens) if prepared.flash else 0) == min(n_rows, 5), room
            with poisoned_memory():
                got = prepared.attend(q, k_pages, v_pages, heads[2] ** -0.5)
            assert_near(got, expected, computed_in(dtype, page_dtype) if page_dtype else dtype)
            assert attention.widened_room == (room if page_dtype else 0), "a captured step copies nothing"


def check_device_tiles(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype) -> None:
    """Tiles that only the device knows, among tiles that do nothing, over a table in which the rows stand elsewhere."""
    step, n_pages = make_step(ROWS, 2, device)
    heads = SHAPES["smollm2" if device.type == "cuda" else "narrow"]
    q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, heads, device, dtype, page_dtype)
    expected = plain_attention(q, k_pages, v_pages, step, 0.125)
    rows = np.arange(2, step.n_rows)
    starts, counts, offsets = (column[rows] for column in (step.row_starts, step.row_counts, step.row_offsets))
    for room in ROOMS:
        attention = widening_attention(heads, dtype, device, room)
        tiles = list_tiles(rows + 10, starts, counts, offsets, attention.tile_tokens, attention.widened_room)
        padded = torch.from_numpy(np.concatenate((tiles, np.zeros_like(tiles)))).to(device)
        table = torch.cat((torch.full((10, step.page_table.shape[1]), n_pages - 1, device=device), step.page_table)).int()
        captured = replace(step, page_table=step.page_table[:2], device_tiles=DeviceTiles(padded, table))
        with poisoned_memory():
            got = attention.prepare(captured).attend(q, k_pages, v_pages, 0.125)
        assert_near(got, expected, computed_in(dtype, page_dtype))


WIDENED_CHECKS: dict[str, Check] = {
    f"{kind} {name}": partial(check, page_dtype=page_dtype)
    for kind, page_dtype in (("fp8", FP8), ("int8", torch.int8), ("int4", INT4))
    for name, check in (("prompts", check_prompts), ("device tiles", check_device_tiles))
}
