"""Log probabilities of the chosen tokens and of the most probable ones, computed from raw logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.uploads import upload
from messages.generation.logprobs import TokenLogprobs

_MAGNITUDE = 0x7FFFFFFF  # the bits of a float32 without its sign
_ID_BITS = 31


@dataclass(frozen=True)
class ComputedLogprobs:
    """Log probabilities for the M of S samples that asked for them. Tensors are all on the device, or all on the host."""

    index: np.ndarray  # [M] int64: which of the S samples
    asked: np.ndarray  # [S] int64: -1 none, n: the chosen token's and the top n
    chosen: torch.Tensor  # [M] float32
    top_ids: torch.Tensor  # [M, W] int64
    top: torch.Tensor  # [M, W] float32

    def to_host(self) -> ComputedLogprobs:
        """The same with tensors on the host. The copy is only queued: read them after an event that is recorded after it."""
        copies = [tensor.to("cpu", non_blocking=True) for tensor in (self.chosen, self.top_ids, self.top)]
        return ComputedLogprobs(self.index, self.asked, *copies)


def compute_logprobs(logits: torch.Tensor, ids: torch.Tensor, asked: np.ndarray) -> ComputedLogprobs:
    """Log probabilities of `ids` and of the most probable tokens, for the samples that ask; on the device of the logits.

    logits: [S, vocabulary], any float dtype, raw; ids: [S] int64, same device; asked: [S] int64 on the host, not all -1."""
    index = np.flatnonzero(asked >= 0)
    if len(index) < len(asked):
        on_device = upload(index, logits.device)
        logits, ids = logits[on_device], ids[on_device]
    log_p = torch.log_softmax(logits.float(), -1)  # widened first: then logits of both dtypes are summed in one order
    top_ids = greatest_ids(log_p, int(asked.max()))
    return ComputedLogprobs(index, asked, log_p.gather(-1, ids[:, None]).squeeze(-1), top_ids, log_p.gather(-1, top_ids))


def greatest_ids(log_p: torch.Tensor, n: int) -> torch.Tensor:
    """The ids of the n greatest of each row, the greatest first; among equal ones the lowest ids, whatever n is.

    log_p: [M, vocabulary] float32, none above 0. Returns [M, n] int64. `topk` alone leaves the order of equal ones open, and
    logits of 16 bits are often equal."""
    if not n:
        return torch.empty((len(log_p), 0), dtype=torch.int64, device=log_p.device)
    depth = (log_p.contiguous().view(torch.int32) & _MAGNITUDE).long()  # negative floats fall as their magnitude rises
    keys = depth.mul_(1 << _ID_BITS).add_(torch.arange(log_p.shape[-1], device=log_p.device))
    return keys.topk(n, -1, largest=False).values & ((1 << _ID_BITS) - 1)


def emitted_logprobs(computed: ComputedLogprobs | None, emitted: np.ndarray) -> TokenLogprobs | None:
    """The log probabilities of the emitted samples; None if there are none.

    computed: on the host; emitted: [E] int64, the indices of the emitted samples among the S."""
    if computed is None or not len(emitted):
        return None
    n, width = len(computed.asked), computed.top.shape[-1]
    chosen = np.full(n, np.nan, np.float32)
    top_ids = np.full((n, width), -1, np.int32)
    top = np.full((n, width), np.nan, np.float32)
    chosen[computed.index] = computed.chosen.numpy()
    top_ids[computed.index] = computed.top_ids.numpy()
    top[computed.index] = computed.top.numpy()
    is_fill = np.arange(width)[None, :] >= computed.asked[:, None]
    top_ids[is_fill], top[is_fill] = -1, np.nan
    return TokenLogprobs(chosen=chosen[emitted], width=width, top_ids=top_ids[emitted].ravel(), top=top[emitted].ravel())
