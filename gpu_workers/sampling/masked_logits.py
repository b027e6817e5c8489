"""Masks outside of captured steps: the logits of tokens that a grammar forbids become minus infinity."""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.batch.masked_samples import MaskedSamples
from gpu_workers.batch.uploads import upload


def mask_logits(logits: torch.Tensor, samples: MaskedSamples, *, in_place: bool) -> torch.Tensor:
    """The logits [S, vocabulary] float32 with the masks of some of the S samples applied.

    in_place: the logits may be written; on a CPU a copy takes longer than the masks."""
    bits = np.unpackbits(samples.masks.view(np.uint8), axis=1, bitorder="little", count=logits.shape[1]).view(bool)
    if logits.is_cuda:
        index, forbidden = upload(samples.index, logits.device), upload(~bits, logits.device)
        return logits.index_put((index,), logits[index].masked_fill_(forbidden, float("-inf")))
    masked = logits if in_place else logits.clone()
    for row, allowed in zip(samples.index.tolist(), bits, strict=True):
        np.copyto(masked[row].numpy(), -np.inf, where=~allowed)
    return masked
