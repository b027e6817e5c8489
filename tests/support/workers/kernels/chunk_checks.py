"""Attention of a short chunk after many keys, whose keys are split between programs; as `attention_checks`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gpu_workers.batch.step_tensors import DeviceTiles
from gpu_workers.cuda.kernels.attention.tiles import list_tiles
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.page_format import FP8, INT4
from tests.support.workers.kernels.attention_checks import make_step, plain_attention, random_qkv
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES, Check, assert_near, poisoned_memory
from tests.support.workers.kernels.page_checks import computed_in

_ROWS = ((511, 16), (1017, 16), (1020, 33), (700, 2), (0, 16))  # (position of the first token, tokens)


def check_short_chunk(device: torch.device, dtype: torch.dtype, page_dtype: torch.dtype | None = None) -> None:
    """A chunk after many keys, as a captured step has it while pages arrive: its keys are split between programs, and some of
    its tokens see no key of the last part."""
    for n_heads, n_kv_heads, head_dim in HEAD_SHAPES.values():
        attention = TritonAttention(n_heads, n_kv_heads, head_dim, dtype, has_small_pages=page_dtype == INT4)
        for row in _ROWS:
            step, n_pages = make_step([row], 0, device)
            q, k_pages, v_pages = random_qkv(step.n_tokens, n_pages, (n_heads, n_kv_heads, head_dim), device, dtype, page_dtype)
            tiles = list_tiles(np.zeros(1, np.int64), step.row_starts, step.row_counts, step.row_offsets, attention.tile_tokens)
            padded = torch.from_numpy(np.concatenate((tiles, np.zeros_like(tiles)))).to(device)
            captured = replace(step, device_tiles=DeviceTiles(padded, step.page_table), page_table=step.page_table[:0])
            expected = plain_attention(q, k_pages, v_pages, step, head_dim**-0.5)
            prepared = attention.prepare(replace(captured, arrives=True))
            assert prepared.prefill_splits > 1
            for splits in {2, prepared.prefill_splits}:
                with poisoned_memory():
                    got = replace(prepared, prefill_splits=splits).attend(q, k_pages, v_pages, head_dim**-0.5)
                assert_near(got, expected, computed_in(dtype, page_dtype))


CHUNK_CHECKS: dict[str, Check] = {
    "short chunk": check_short_chunk,
    "short chunk, fp8": partial(check_short_chunk, page_dtype=FP8),
    "short chunk, int8": partial(check_short_chunk, page_dtype=torch.int8),
    "short chunk, int4": partial(check_short_chunk, page_dtype=INT4),
}
