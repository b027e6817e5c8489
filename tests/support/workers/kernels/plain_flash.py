"""What FlashAttention computes, by plain torch: a stand-in where its library cannot run."""

from __future__ import annotations

import torch

from gpu_workers.cuda.flash_attention import FlashRows


def plain_flash(q: torch.Tensor, keys: torch.Tensor, rows: FlashRows, out: torch.Tensor, scale: float) -> None:
    """As `flash_prefill`."""
    group = q.shape[1] // keys.shape[1]
    for row in range(len(rows.n_tokens)):
        first, n, place, n_keys = (int(part[row]) for part in (rows.first_tokens, rows.n_tokens, rows.first_keys, rows.n_keys))
        k, v = (one[:, place : place + n_keys].repeat_interleave(group, 0).float() for one in keys)
        scores = torch.einsum("nhd,hkd->hnk", q[first : first + n].float(), k) * scale
        is_seen = torch.arange(n_keys)[None, :] <= torch.arange(n_keys - n, n_keys)[:, None]
        weights = scores.masked_fill(~is_seen, float("-inf")).softmax(-1)
        out[first : first + n] = torch.einsum("hnk,hkd->nhd", weights, v).to(out.dtype)
