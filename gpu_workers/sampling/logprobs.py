"""Log probabilities beside the chosen tokens: of the raw distribution, before penalties, temperature and filters, as OpenAI's
API and vLLM report them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.uploads import upload
from messages.wire.arrays import EMPTY_F32, EMPTY_I32, float32s, int32s


@dataclass(frozen=True)
class Logprobs:
    """For those of S samples that asked (`index` [M] on the host): chosen [M], top [M, W]; on the device or on the host."""

    index: np.ndarray
    asked: np.ndarray  # [S] int64: -1 none, n: the chosen token's and the top n
    chosen: torch.Tensor  # [M] float32
    top_ids: torch.Tensor  # [M, W] int64
    top: torch.Tensor  # [M, W] float32

    def to_host(self) -> Logprobs:
        """Starts the copy; the values are there when the device has come this far."""
        copies = [tensor.to("cpu", non_blocking=True) for tensor in (self.chosen, self.top_ids, self.top)]
        return Logprobs(self.index, self.asked, *copies)


@dataclass(frozen=True)
class LogprobArrays:
    """As they stand in a `Result`: see `messages.generation.Tokens`."""

    logprobs: np.ndarray
    top_width: int
    top_ids: np.ndarray
    top_logprobs: np.ndarray


_NONE = LogprobArrays(EMPTY_F32, 0, EMPTY_I32, EMPTY_F32)


def compute_logprobs(logits: torch.Tensor, ids: torch.Tensor, asked: np.ndarray) -> Logprobs:
    """logits [S, vocabulary], any float dtype, raw; ids [S] int64, same device; asked [S] int64 on the host, not all -1."""
    index = np.flatnonzero(asked >= 0)
    if len(index) < len(asked):
        on_device = upload(index, logits.device)
        logits, ids = logits[on_device], ids[on_device]
    log_p = torch.log_softmax(logits, -1, dtype=torch.float32)
    top, top_ids = log_p.topk(int(asked.max()), -1)
    return Logprobs(index, asked, log_p.gather(-1, ids[:, None]).squeeze(-1), top_ids, top)


def emitted_arrays(found: Logprobs | None, emitted: np.ndarray) -> LogprobArrays:
    """The arrays for the emitted samples, `emitted` [E] int64 being their numbers among the S. `found` is on the host."""
    if found is None or not len(emitted):
        return _NONE
    n, width = len(found.asked), found.top.shape[-1]
    chosen = np.full(n, np.nan, np.float32)
    top_ids = np.full((n, width), -1, np.int32)
    top = np.full((n, width), np.nan, np.float32)
    chosen[found.index] = found.chosen.numpy()
    top_ids[found.index] = found.top_ids.numpy()
    top[found.index] = found.top.numpy()
    is_fill = np.arange(width)[None, :] >= found.asked[:, None]
    top_ids[is_fill], top[is_fill] = -1, np.nan
    return LogprobArrays(
        float32s(chosen[emitted]), width, int32s(top_ids[emitted].reshape(-1)), float32s(top[emitted].reshape(-1))
    )
