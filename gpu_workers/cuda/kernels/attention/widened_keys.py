"""Keys and values of 8 bits, or small integers, as numbers of 16 bits, written once for all tiles of a row that attend to them.
Those of 16 bits are only copied, for FlashAttention, which does not read pages.

Attention of a prompt reads each key once for every tile of queries. A tile that widens 8-bit numbers itself takes them through
registers, where the tensor cores read shared memory, and its registers do not suffice. So one layer's keys are widened in front
of its attention, into memory that all layers use one after the other:

    widened  [2, n_kv_heads, n_keys, head_dim]      keys and values; those of a row begin where its tiles say

A number times its scale is rounded to the dtype of the model, as the key itself was before it was stored; float32 models take
float16. Pages are read after the keys of the step are stored in them, so prompts see the keys that decode sees.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.attention.paged_prefill import read_tile, read_widening
from gpu_workers.cuda.kernels.attention.tiles import TILE_FIELDS, WIDENED_BLOCK
from gpu_workers.cuda.kernels.launch import dependent_launch
from gpu_workers.cuda.kernels.pages.scaled_pages import scale_places, widen
from gpu_workers.cuda.kernels.pages.small_pages import load_small, transformed_back
from messages.steps import PAGE_TOKENS

_PROGRAMS, _MOST_SPLITS = 2048, 16  # enough to keep the memory busy; of one tile and kv head


def allocate_widened(n_kv_heads: int, n_keys: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for the widened keys of a rank. n_keys: a multiple of WIDENED_BLOCK; dtype: of the model."""
    dtype = torch.float16 if dtype == torch.float32 else dtype
    return torch.empty((2, n_kv_heads, n_keys, head_dim), dtype=dtype, device=device)


@triton.jit
def _widen_block(
    PAGES, page, token, seen, kv_head, stride_slot, out, D: tl.constexpr, PAGE: tl.constexpr, IS_KEY: tl.constexpr
):  # fmt: skip
    """Widens a block of keys or of values of a kv head. page: where the page of each begins in PAGES; out: pointers [BN, D]."""
    if PAGES.dtype.element_ty == tl.uint8:
        numbers = load_small(PAGES, page, token, seen, kv_head, stride_slot // D, D, PAGE, IS_KEY)
        wide = tl.where(seen[:, None], transformed_back(numbers, D, IS_KEY), 0.0)
    elif PAGES.dtype.element_ty.primitive_bitwidth > 8:
        at = (page + token * stride_slot + kv_head * D)[:, None] + tl.arange(0, D)[None, :]
        wide = tl.load(PAGES + at, mask=seen[:, None], other=0.0)
    else:
        scales = tl.load(scale_places(PAGES, page, token, kv_head, stride_slot, PAGE), mask=seen, other=0.0)
        at = (page + token * stride_slot + kv_head * D)[:, None] + tl.arange(0, D)[None, :]
        numbers = widen(tl.load(PAGES + at, mask=seen[:, None], other=0.0))
        wide = numbers.to(tl.float32) * scales.to(tl.float32)[:, None]
    tl.store(out, wide.to(out.dtype.element_ty))


@triton.jit(do_not_specialize=["stride_table"])
def _widen_kernel(
    K, V, TABLE, TILES, WIDENED_K, WIDENED_V, stride_table, stride_page, stride_slot, stride_head,
    TOKENS: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr, FIELDS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The tiles of a row share its blocks of keys: in turn, and once more among the programs of a tile."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    tile = TILES + tl.program_id(0) * FIELDS
    kv_head = tl.program_id(1)
    row, _, n_tokens, _, length = read_tile(tile)
    widened_place, n_tiles = read_widening(tile)
    if widened_place < 0:
        return
    table = TABLE + row * stride_table
    first = (n_tiles - tl.cdiv(n_tokens, TOKENS)) * tl.num_programs(2) + tl.program_id(2)
    out = kv_head * stride_head.to(tl.int64) + widened_place * D
    d = tl.arange(0, D)
    for n0 in range(first * BN, length, tl.maximum(n_tiles, 1) * tl.num_programs(2) * BN):
        key = n0 + tl.arange(0, BN)
        seen = key < length
        page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64) * stride_page
        place = out + (key * D)[:, None] + d[None, :]
        _widen_block(K, page, key % PAGE, seen, kv_head, stride_slot, WIDENED_K + place, D, PAGE, True)
        _widen_block(V, page, key % PAGE, seen, kv_head, stride_slot, WIDENED_V + place, D, PAGE, False)


def widen_keys(
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    tiles: torch.Tensor,
    widened: torch.Tensor,
    tile_tokens: int,
) -> None:
    """Writes the keys and values of the rows of these tiles that have a place in `widened`, and zeros up to a whole block.
    tiles: from `list_tiles` with tile_tokens; pages of any dtype; page_table as in `paged_prefill`."""
    n_kv_heads, head_dim = k_pages.shape[2], widened.shape[3]
    keys, values = widened
    n_programs = max(1, tiles.shape[0] * n_kv_heads)
    pdl = dependent_launch(k_pages.device)
    _widen_kernel[(tiles.shape[0], n_kv_heads, max(1, min(_MOST_SPLITS, _PROGRAMS // n_programs)))](
        k_pages, v_pages, page_table, tiles, keys, values,
        page_table.stride(0), k_pages.stride(0), n_kv_heads * head_dim, keys.stride(0),
        TOKENS=tile_tokens, D=head_dim, BN=WIDENED_BLOCK, PAGE=PAGE_TOKENS, FIELDS=TILE_FIELDS, PDL=pdl,
        num_warps=4, launch_pdl=pdl,
    )  # fmt: skip
