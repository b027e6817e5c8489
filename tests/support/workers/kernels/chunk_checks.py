"""Attention of a short chunk after many keys, whose keys are split between programs; as `attention_checks`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gpu_workers.batch.step_tensors import DeviceTiles
from gpu_workers.cuda.kernels.attention.tiles import list_tiles
from gpu_workers.cuda.triton_attention import TritonAttention
from tests.support.workers.kernels.attention_checks import make_step, plain_attention, random_qkv
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES, assert_near, poisoned_memory

# (position of the first token, tokens), by heads; few variants of the kernels, because each takes seconds to compile
CHUNK_ROWS = {"llama-8b": ((511, 16), (1017, 16), (1020, 33)), "smollm2": ((700, 2), (5, 2))}


def check_short_chunk(device: torch.device, dtype: torch.dtype, heads: str) -> None:
    """A chunk after many keys, as a captured step has it while pages arrive: its keys are split between programs, and some of
    its tokens see no key of the last part. heads: a name in CHUNK_ROWS."""
    n_heads, n_kv_heads, head_dim = HEAD_SHAPES[heads]
    attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype)
    for row in CHUNK_ROWS[heads]:
        step, n_pages = make_step([row], 0, device)
        q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype)
        tiles = list_tiles(np.zeros(1, np.int64), step.row_starts, step.row_counts, step.row_offsets, attention.tile_tokens)
        padded = torch.from_numpy(np.concatenate((tiles, np.zeros_like(tiles)))).to(device)
        tiled = DeviceTiles(padded, step.page_table)
        prepared = attention.prepare(replace(step, device_tiles=tiled, page_table=step.page_table[:0], arrives=True))
        assert prepared.prefill_splits > 1
        with poisoned_memory():
            got = prepared.attend(q, k_pages, v_pages, head_dim**-0.5)
        assert_near(got, plain_attention(q, k_pages, v_pages, step, head_dim**-0.5), dtype)
