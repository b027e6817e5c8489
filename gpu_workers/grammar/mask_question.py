"""What the masks of a step depend on: its samples that have a grammar, and the tokens before them, on their way to the host.

The tokens are asked for before the step is launched and read when its masks are needed, so on a GPU the masks are computed
while the device runs the layers of the step: only the choice of its tokens waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.uploads import upload


@dataclass(frozen=True)
class TokenSpan:
    """The tokens of one slot that are asked for: those that its matcher does not know yet, then the drafts of the step."""

    slot: int
    first: int  # position of the first token
    middle: int  # of the first draft, which is also where the first sample will stand
    last: int  # after the last draft: where the last sample will stand

    @property
    def n_samples(self) -> int:
        """The samples of the slot in this step."""
        return self.last - self.middle + 1


@dataclass(frozen=True)
class MaskQuestion:
    """M samples of a step, slot after slot. All arrays are on the host."""

    index: np.ndarray  # [M] int64: among all samples of the step
    slots: np.ndarray  # [M] int64
    positions: np.ndarray  # [M] int64: of the tokens to be sampled
    spans: Sequence[TokenSpan]
    _read: torch.Tensor  # int32: the tokens of all spans; valid after the event
    _is_read: torch.cuda.Event | None  # None: at once

    def known(self) -> list[list[int]]:
        """The tokens of each span. Waits until the device has run what was queued before the question."""
        if self._is_read is not None:
            self._is_read.synchronize()
        tokens, found, at = self._read.tolist(), list[list[int]](), 0
        for span in self.spans:
            found.append(tokens[at : at + span.last - span.first])
            at += span.last - span.first
        return found


def ask(
    samples: Mapping[int, np.ndarray], n_consumed: Mapping[int, int], positions: np.ndarray, tokens: torch.Tensor
) -> MaskQuestion:
    """Queues the reading of tokens before a step is launched, and waits for nothing.

    samples: the step's samples [N] int64 of each slot that has a grammar, one position after the other; n_consumed: tokens of
    these sequences that their matchers know; positions: [S] of all samples; tokens: the token table."""
    index = np.concatenate(list(samples.values()))
    spans = [
        TokenSpan(slot, n_consumed[slot], int(positions[found[0]]), int(positions[found[-1]]))
        for slot, found in samples.items()
    ]
    width = tokens.shape[1]
    counts = np.array([span.last - span.first for span in spans])
    begins = np.array([span.slot * width + span.first for span in spans])
    places = np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    read, is_read = tokens.view(-1)[upload(places, tokens.device)].to("cpu", non_blocking=True), None
    if tokens.is_cuda:
        is_read = torch.cuda.Event()
        is_read.record()
    slots = np.repeat(np.array([span.slot for span in spans], np.int64), [span.n_samples for span in spans])
    return MaskQuestion(index, slots, positions[index], spans, read, is_read)
