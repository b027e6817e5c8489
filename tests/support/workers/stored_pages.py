"""Pages to which torch and compiled kernels have written the same random keys and values."""

from __future__ import annotations

import torch

from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.rotary import cos_sin_table
from gpu_workers.layers.torch_ops import KvTarget, Ops, TorchOps
from messages.steps import PAGE_TOKENS


def stored_by_both(
    ops: Ops, page_dtype: torch.dtype, n_tokens: int, heads: tuple[int, int, int], dtype: torch.dtype, size: float
) -> tuple[KvPages, KvPages]:
    """Three layers of four pages as torch writes the middle one, and as `ops` does. heads: of keys, queries on each, head_dim;
    size: of the numbers."""
    n_kv_heads, shared, head_dim = heads
    n_heads, generator = n_kv_heads * shared, torch.Generator().manual_seed(n_tokens)
    qkv = (torch.randn((n_tokens, n_heads + 2 * n_kv_heads, head_dim), generator=generator) * size).to(dtype)
    positions = torch.randint(0, 500, (n_tokens,), generator=generator)
    slots = torch.randperm(4 * PAGE_TOKENS, generator=generator)[:n_tokens]
    table = cos_sin_table(10_000.0 ** -(torch.arange(head_dim // 2) / head_dim * 2), 500)
    found: list[KvPages] = []
    for each in (TorchOps(), ops):
        q, k, v = qkv.clone().split((n_heads, n_kv_heads, n_kv_heads), 1)
        kv = KvPages.allocate(KvShape(3, n_kv_heads, head_dim, page_dtype), 4, "cpu")
        each.rope_and_store(q, k, v, KvTarget(positions, table, kv.keys[1], kv.values[1], slots))
        found.append(kv)
    by_torch, by_ops = found
    return by_torch, by_ops
