"""Rotary positions and the write of keys and values to their pages, in one kernel.

One program holds one token's kv head and the query heads that read it."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two
from gpu_workers.cuda.kernels.pages.scaled_pages import rounded, scale_of, scale_places
from gpu_workers.cuda.kernels.pages.small_pages import store_small
from gpu_workers.layers.torch_ops import KvTarget
from messages.steps import PAGE_TOKENS


@triton.jit
def _store_scaled(
    K, V, K_PAGES, V_PAGES, slot, kv_head, place, cos, sin, stride_page, stride_slot, in_half,
    HALF: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Stores a key and a value, whose first halves are at K and V, as 8-bit numbers with scales. The key is rounded to the
    dtype of the model first, as if it had been stored so."""
    page, token = slot // PAGE * stride_page, slot % PAGE
    x, y = tl.load(K, mask=in_half, other=0.0).to(tl.float32), tl.load(K + HALF, mask=in_half, other=0.0).to(tl.float32)
    first = (x * cos - y * sin).to(K.dtype.element_ty).to(tl.float32)
    second = (y * cos + x * sin).to(K.dtype.element_ty).to(tl.float32)
    k_scale = scale_places(K_PAGES, page, token, kv_head, stride_slot, PAGE)
    _store_halves(first, second, K_PAGES, place, k_scale, in_half, HALF, True)
    x, y = tl.load(V, mask=in_half, other=0.0).to(tl.float32), tl.load(V + HALF, mask=in_half, other=0.0).to(tl.float32)
    v_scale = scale_places(V_PAGES, page, token, kv_head, stride_slot, PAGE)
    _store_halves(x, y, V_PAGES, place, v_scale, in_half, HALF, False)


@triton.jit
def _store_halves(x, y, PAGES, place, scale_place, in_half, HALF: tl.constexpr, IS_KEY: tl.constexpr):
    """Both halves of a vector, float32, to the offsets `place` of PAGES and HALF after them, and their scale."""
    scale, inverse = scale_of(x, y, PAGES, IS_KEY)
    tl.store(PAGES + place, rounded(x * inverse, PAGES), mask=in_half)
    tl.store(PAGES + place + HALF, rounded(y * inverse, PAGES), mask=in_half)
    tl.store(scale_place, scale)


@triton.jit
def _store_small(
    K, V, K_PAGES, V_PAGES, slot, kv_head, n_kv_heads, d, cos, sin, stride_page, HALF: tl.constexpr, PAGE: tl.constexpr
):  # fmt: skip
    """Stores a key and a value, which begin at K and V, as small integers. The key is first rounded to the model's dtype."""
    page, token = slot // PAGE * stride_page, slot % PAGE
    x, y = tl.load(K + d).to(tl.float32), tl.load(K + HALF + d).to(tl.float32)
    first, second = (x * cos - y * sin).to(K.dtype.element_ty), (y * cos + x * sin).to(K.dtype.element_ty)
    key = tl.reshape(tl.permute(tl.join(first, second), (1, 0)), (2 * HALF,))
    store_small(key, K_PAGES, page, token, kv_head, n_kv_heads, True, 2 * HALF, PAGE, True)
    value = tl.load(V + tl.arange(0, 2 * HALF))
    store_small(value, V_PAGES, page, token, kv_head, n_kv_heads, True, 2 * HALF, PAGE, False)


@triton.jit(do_not_specialize_on_alignment=["POSITIONS", "KV_SLOTS"])  # see `launch`
def _rope_store_kernel(
    Q, K, V, POSITIONS, COS_SIN, K_PAGES, V_PAGES, SLOT_MAPPING, OUT,
    stride_q, stride_k, stride_v, n_heads, stride_page, stride_slot,
    GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr, PAGE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    kv_head = tl.program_id(0)
    token = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, HALF_BLOCK)
    in_half = d < HALF
    position = tl.load(POSITIONS + token)
    cos = tl.load(COS_SIN + position * (2 * HALF) + d, mask=in_half, other=0.0)
    sin = tl.load(COS_SIN + position * (2 * HALF) + HALF + d, mask=in_half, other=0.0)

    group = tl.arange(0, GROUP_BLOCK)
    inside = (group < GROUP)[:, None] & in_half[None, :]
    head_offset = ((kv_head * GROUP + group) * (2 * HALF))[:, None] + d[None, :]
    a = tl.load(Q + token * stride_q + head_offset, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(Q + token * stride_q + head_offset + HALF, mask=inside, other=0.0).to(tl.float32)
    out = OUT + token * (n_heads * 2 * HALF) + head_offset
    tl.store(out, (a * cos[None, :] - b * sin[None, :]).to(OUT.dtype.element_ty), mask=inside)
    tl.store(out + HALF, (b * cos[None, :] + a * sin[None, :]).to(OUT.dtype.element_ty), mask=inside)

    kv_offset = kv_head * (2 * HALF) + d
    slot = tl.load(SLOT_MAPPING + token)
    place = slot // PAGE * stride_page + slot % PAGE * stride_slot + kv_offset
    if K_PAGES.dtype.element_ty == tl.uint8:
        start = kv_head * (2 * HALF)
        k, v = K + token * stride_k + start, V + token * stride_v + start
        _store_small(
            k, v, K_PAGES, V_PAGES, slot, kv_head, tl.num_programs(0), d, cos, sin, stride_page, HALF, PAGE
        )  # fmt: skip
        return
    if K_PAGES.dtype.element_ty.primitive_bitwidth == 8:
        k, v = K + token * stride_k + kv_offset, V + token * stride_v + kv_offset
        _store_scaled(
            k, v, K_PAGES, V_PAGES, slot, kv_head, place, cos, sin, stride_page, stride_slot, in_half, HALF, PAGE
        )  # fmt: skip
        return
    a = tl.load(K + token * stride_k + kv_offset, mask=in_half, other=0.0).to(tl.float32)
    b = tl.load(K + token * stride_k + kv_offset + HALF, mask=in_half, other=0.0).to(tl.float32)
    tl.store(K_PAGES + place, (a * cos - b * sin).to(K_PAGES.dtype.element_ty), mask=in_half)
    tl.store(K_PAGES + place + HALF, (b * cos + a * sin).to(K_PAGES.dtype.element_ty), mask=in_half)
    a = tl.load(V + token * stride_v + kv_offset, mask=in_half, other=0.0)
    b = tl.load(V + token * stride_v + kv_offset + HALF, mask=in_half, other=0.0)
    tl.store(V_PAGES + place, a.to(V_PAGES.dtype.element_ty), mask=in_half)
    tl.store(V_PAGES + place + HALF, b.to(V_PAGES.dtype.element_ty), mask=in_half)


def rope_and_store(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
    """As `Ops.rope_and_store`: heads contiguous inside a token, tokens at any stride."""
    n_tokens, n_heads, head_dim = q.shape
    n_kv_heads = k.shape[1]
    out = torch.empty((n_tokens, n_heads, head_dim), dtype=q.dtype, device=q.device)
    if n_tokens == 0:
        return out
    group = n_heads // n_kv_heads
    pdl = dependent_launch(q.device)
    _rope_store_kernel[(n_kv_heads, n_tokens)](
        q, k, v, target.positions, target.cos_sin, target.k_pages, target.v_pages, target.slot_mapping, out,
        q.stride(0), k.stride(0), v.stride(0), n_heads, target.k_pages.stride(0), n_kv_heads * head_dim,
        GROUP=group, GROUP_BLOCK=power_of_two(group), HALF=head_dim // 2, HALF_BLOCK=power_of_two(head_dim // 2),
        PAGE=PAGE_TOKENS, PDL=pdl, num_warps=1 if group * head_dim <= 256 else 2, launch_pdl=pdl,
    )  # fmt: skip
    return out
