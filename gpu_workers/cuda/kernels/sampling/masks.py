"""The logits of the rows that have a grammar, without the tokens that would break it."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 4096


@triton.jit(do_not_specialize=["n_words"], do_not_specialize_on_alignment=["INDEX", "MASKS"])
def _mask_kernel(LOGITS, INDEX, MASKS, OUT, V, stride_logits, n_words, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(LOGITS + tl.load(INDEX + row) * stride_logits + token, mask=token < V, other=0.0)
    word = tl.load(MASKS + row * n_words + (token >> 5), mask=token < V, other=0)
    is_allowed = ((word >> (token & 31)) & 1) != 0
    tl.store(OUT + row * V + token, tl.where(is_allowed, x, float("-inf")), mask=token < V)


def mask_rows(logits: torch.Tensor, index: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Copies of the rows index[i] of logits in which the tokens that masks[i] forbids are minus infinity: [M, V].

    logits: [S, V] float32, bfloat16 or float16, rows contiguous, not changed; index: [M] int64; masks: [M, words] int32,
    contiguous: bit t % 32 of word t // 32 allows token t. All on one device."""
    n, vocabulary = len(index), logits.shape[1]
    masked = torch.empty((n, vocabulary), dtype=logits.dtype, device=logits.device)
    _mask_kernel[(triton.cdiv(vocabulary, _BLOCK), n)](
        logits, index, masks, masked, vocabulary, logits.stride(0), masks.shape[1], BLOCK=_BLOCK, num_warps=8,
    )  # fmt: skip
    return masked
