"""Causal attention of a short chunk after many keys: the keys of a tile are split between programs, and a second kernel joins
their results.

`paged_prefill` has one program for each tile and kv head. Those of a short chunk are so few that most multiprocessors have
nothing to do, while each program reads all keys one block after the other. Splitting keys between programs follows
Flash-Decoding (Dao et al., 2023). For pages of the model's dtype.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.attention.paged_decode import LOG2_E
from gpu_workers.cuda.kernels.attention.paged_prefill import mix_keys, place_pairs, read_tile
from gpu_workers.cuda.kernels.attention.tiles import TILE_FIELDS, TileShape
from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two
from messages.steps import PAGE_TOKENS

_PROGRAMS = 128  # that read keys, about one for each multiprocessor of an H100 or H200; 0: no keys are split
_LEAST_PAIRS = 32  # (token, head) pairs of a program
_PAIRS_OF_WARP = 16


def prefill_splits(n_tokens: int, n_kv_heads: int, tile_tokens: int) -> int:
    """Programs that share the keys of a tile, a power of two, where one row has all of these tokens."""
    n_programs, splits = -(-n_tokens // tile_tokens) * n_kv_heads, 1
    while 2 * splits * n_programs <= _PROGRAMS:
        splits *= 2
    return splits


@triton.jit(do_not_specialize=["stride_table"])
def _split_kernel(
    Q, K, V, TABLE, TILES, PARTIAL, LSE, scale_log2, stride_q, stride_table, stride_page, stride_slot, n_heads,
    GROUP: tl.constexpr, TOKENS: tl.constexpr, BM: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr,
    FIELDS: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One part of the keys of a tile. A part that none of a token's keys is in has the weight 0 for this token."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    tile = TILES + tl.program_id(0) * FIELDS
    kv_head, split = tl.program_id(1), tl.program_id(2)
    row, first_token, n_tokens, first_position, length = read_tile(tile)
    pair = tl.arange(0, BM)
    token, head, valid, position = place_pairs(pair, kv_head, first_position, n_tokens, GROUP, TOKENS)
    part = ((first_token + token) * n_heads + head) * SPLITS + split
    n_keys = tl.minimum(first_position + TOKENS, length)  # of the tile
    per_split = tl.cdiv(tl.cdiv(n_keys, SPLITS), BN) * BN
    start = split * per_split
    end = tl.minimum(start + per_split, n_keys)
    if start >= end:
        tl.store(LSE + part, tl.full([BM], float("-inf"), tl.float32), mask=valid)
        return
    table, kv_offset = TABLE + row * stride_table, kv_head * D
    d = tl.arange(0, D)
    place = (first_token + token) * stride_q + head * D
    q = tl.load(Q + place[:, None] + d[None, :], mask=valid[:, None], other=0.0)
    maximum = tl.full([BM], -1e30, tl.float32)  # not -inf: a token may see no key of this part
    total = tl.zeros([BM], tl.float32)
    mixed = tl.zeros([BM, D], tl.float32)
    plain_end = tl.minimum((first_position + 1) // BN * BN, end)  # keys before it are seen by every token of the tile
    for n0 in range(start, plain_end, BN):
        maximum, total, mixed = mix_keys(
            q, K, V, table, kv_offset, maximum, total, mixed, position, n0, length, scale_log2, stride_page, stride_slot,
            0.0, 0.0, D, BN, PAGE, False, PRECISION, False, False, False,
        )  # fmt: skip
    for n0 in range(tl.maximum(start, plain_end), end, BN):
        maximum, total, mixed = mix_keys(
            q, K, V, table, kv_offset, maximum, total, mixed, position, n0, length, scale_log2, stride_page, stride_slot,
            0.0, 0.0, D, BN, PAGE, True, PRECISION, False, False, False,
        )  # fmt: skip
    seen = total > 0.0
    tl.store(LSE + part, tl.where(seen, maximum + tl.log2(tl.where(seen, total, 1.0)), float("-inf")), mask=valid)
    tl.store(PARTIAL + part[:, None] * D + d[None, :], mixed / tl.where(seen, total, 1.0)[:, None], mask=valid[:, None])


@triton.jit
def _join_kernel(PARTIAL, LSE, OUT, D: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr):
    """One head of one token. What is written for tokens of no tile means nothing."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    token_head = tl.program_id(0).to(tl.int64)
    split, d = tl.arange(0, SPLITS), tl.arange(0, D)
    lse = tl.load(LSE + token_head * SPLITS + split)
    written = lse > float("-inf")
    weights = tl.where(written, tl.exp2(lse - tl.max(lse, 0)), 0.0)
    places = PARTIAL + (token_head * SPLITS + split)[:, None] * D + d[None, :]
    parts = tl.load(places, mask=written[:, None], other=0.0)
    out = tl.sum(parts * weights[:, None], 0) / tl.sum(weights, 0)
    tl.store(OUT + token_head * D + d, out.to(OUT.dtype.element_ty))


def split_prefill(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    page_table: torch.Tensor,
    tiles: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    shape: TileShape,
    splits: int,
) -> None:
    """As `paged_prefill`, for pages of q's dtype. splits: of the keys of each tile, a power of two. What it writes for tokens
    that no tile names means nothing."""
    n_tokens, n_heads, head_dim = q.shape
    group, pdl = n_heads // k_pages.shape[2], dependent_launch(q.device)
    tile_tokens = shape.tokens(group)
    pairs = min(shape.pairs, power_of_two(min(n_tokens, tile_tokens) * group, _LEAST_PAIRS))
    partial = torch.empty(n_tokens, n_heads, splits, head_dim, dtype=torch.float32, device=q.device)
    lse = torch.empty(n_tokens, n_heads, splits, dtype=torch.float32, device=q.device)
    _split_kernel[(tiles.shape[0], k_pages.shape[2], splits)](
        q, k_pages, v_pages, page_table, tiles, partial, lse, scale * LOG2_E, q.stride(0), page_table.stride(0),
        k_pages.stride(0), k_pages.shape[2] * head_dim, n_heads,
        GROUP=group, TOKENS=tile_tokens, BM=pairs, D=head_dim, BN=shape.keys, PAGE=PAGE_TOKENS, FIELDS=TILE_FIELDS,
        SPLITS=splits, PRECISION="ieee" if q.dtype == torch.float32 else "tf32", PDL=pdl,
        num_warps=min(shape.warps, max(pairs // _PAIRS_OF_WARP, 1)), num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    _join_kernel[(n_tokens * n_heads,)](
        partial, lse, out, D=head_dim, SPLITS=splits, PDL=pdl, num_warps=4 if splits > 4 else 1, launch_pdl=pdl
    )
