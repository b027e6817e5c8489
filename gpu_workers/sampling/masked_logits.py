"""Masks of grammars for the samples of a step, and what they do to logits outside of captured steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.uploads import upload


@dataclass(frozen=True)
class MaskedSamples:
    """M samples of a step and the tokens that a grammar allows there. The samples of one slot are adjacent. All arrays are on
    the host."""

    index: np.ndarray  # [M] int64: among all samples of the step
    slots: np.ndarray  # [M] int64
    positions: np.ndarray  # [M] int64: of the tokens to be sampled
    drafts: np.ndarray  # [M] int64: the draft before each sample; that of a slot's first sample means nothing
    masks: np.ndarray  # [M, words] int32: bit t % 32 of word t // 32 is set if token t is allowed


def mask_logits(logits: torch.Tensor, samples: MaskedSamples, *, in_place: bool) -> torch.Tensor:
    """The logits [S, vocabulary] float32, on any device, with those of forbidden tokens replaced by minus infinity.

    samples: those of the S samples that have a mask. in_place: on a CPU the result may be `logits` itself, changed, because a
    copy takes longer than the masks."""
    bits = np.unpackbits(samples.masks.view(np.uint8), axis=1, bitorder="little", count=logits.shape[1]).view(bool)
    if logits.is_cuda:
        index, forbidden = upload(samples.index, logits.device), upload(~bits, logits.device)
        return logits.index_put((index,), logits[index].masked_fill_(forbidden, float("-inf")))
    masked = logits if in_place else logits.clone()
    for row, allowed in zip(samples.index.tolist(), bits, strict=True):
        np.copyto(masked[row].numpy(), -np.inf, where=~allowed)
    return masked
