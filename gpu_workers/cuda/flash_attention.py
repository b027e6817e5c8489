"""FlashAttention 3 for the prompts of large steps (Shah et al., 2024), by the package fa3-fwd where that is installed.

It takes keys that follow one another, so those of a row are copied from their pages first, as 8-bit ones are widened
(`kernels.attention.widened_keys`). It computes 8,192 tokens of Llama-8B in half of the time that our kernel takes.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import numpy as np
import structlog
import torch

from gpu_workers.batch.uploads import upload_together
from gpu_workers.cuda.capability import is_flash_installed

_MODULE = "fa3_fwd._C"  # registers torch.ops.fa3_fwd
_HEAD_DIMS = (64, 128, 256)  # those of the package that are among ours
_HOPPER = (9, 0)


@dataclass(frozen=True)
class FlashRows:
    """The rows of a step that FlashAttention computes, R of them, in any order. Tensors are int32 on the device."""

    first_tokens: torch.Tensor  # [R + 1] flat index of the first token of each row; the last one is not read
    n_tokens: torch.Tensor  # [R]
    first_keys: torch.Tensor  # [R + 1] place of the first key of each row; the last one is not read
    n_keys: torch.Tensor  # [R]
    most_tokens: int
    most_keys: int


def load_flash(dtype: torch.dtype, head_dim: int, device: torch.device) -> bool:
    """Loads FlashAttention 3 for this dtype of q; False if it is not installed or does not cover this."""
    is_covered = dtype == torch.bfloat16 and head_dim in _HEAD_DIMS
    if not is_covered or not is_flash_installed() or torch.cuda.get_device_capability(device) != _HOPPER:
        return False
    importlib.import_module(_MODULE)
    structlog.get_logger().info("FlashAttention 3 computes long prompts", head_dim=head_dim)
    return True


def flash_rows(tiles: np.ndarray, tile_tokens: int, device: torch.device) -> FlashRows | None:
    """The rows of these tiles that have a place among copied keys; None if none has. tiles: from `list_tiles` with
    tile_tokens."""
    is_first = -(-tiles[:, 2] // tile_tokens) == tiles[:, 6]  # the tile with all tokens of its row left
    chosen = tiles[is_first & (tiles[:, 5] >= 0)].astype(np.int32)
    if not len(chosen):
        return None
    offsets, counts, ends, places = (np.ascontiguousarray(chosen[:, field]) for field in (1, 2, 4, 5))
    arrays = (np.append(offsets, np.int32(0)), counts, np.append(places, np.int32(0)), ends)
    first_tokens, n_tokens, first_keys, n_keys = upload_together(arrays, device)
    return FlashRows(first_tokens, n_tokens, first_keys, n_keys, int(counts.max()), int(ends.max()))


def flash_prefill(q: torch.Tensor, keys: torch.Tensor, rows: FlashRows, out: torch.Tensor, scale: float) -> None:
    """Causal attention of these rows; other tokens of out stay as they are. q, out: [T, n_heads, head_dim], heads contiguous;
    keys: [2, n_kv_heads, n_keys, head_dim], keys and values, as `widen_keys` leaves them."""
    k, v = keys.transpose(1, 2)
    unused = None
    torch.ops.fa3_fwd.fwd(
        q, k, v, unused, unused, unused, out, rows.first_tokens, rows.first_keys, unused, rows.n_tokens, rows.n_keys,
        rows.most_tokens, rows.most_keys, unused, unused, unused, unused, unused, unused, unused, unused, unused, scale,
        True, -1, -1, 0, 0.0, True, unused, 1, unused, 0,
    )  # fmt: skip
