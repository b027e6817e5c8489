"""Log probabilities of the tokens of prompts, computed from hidden states a piece at a time, so that logits stay small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_workers.batch.prompt_rows import PromptRows
from gpu_workers.sampling.logprobs import greatest_ids
from messages.generation.logprobs import PromptLogprobs, TokenLogprobs
from messages.wire.arrays import float32s, int32s

_PIECE_LOGITS = 1 << 22  # 16 MiB of float32; with what the search for the greatest takes beside them, 100 MiB


@dataclass(frozen=True)
class ComputedPrompts:
    """Log probabilities of P tokens of prompts. Tensors are all on the device, or all on the host."""

    rows: PromptRows
    chosen: torch.Tensor  # [P] float32
    ranks: torch.Tensor  # [P] int64
    top_ids: torch.Tensor  # [P, W] int64
    top: torch.Tensor  # [P, W] float32

    def to_host(self) -> ComputedPrompts:
        """The same with tensors on the host. The copy is only queued: read them after an event that is recorded after it."""
        tensors = (self.chosen, self.ranks, self.top_ids, self.top)
        return ComputedPrompts(self.rows, *(tensor.to("cpu", non_blocking=True) for tensor in tensors))

    def parts(self) -> list[PromptLogprobs]:
        """One part for each row, with as many top tokens as its sequence wants. Only on the host."""
        parts, start = [], 0
        rows = self.rows
        for slot, first, count, width in zip(rows.slots, rows.firsts, rows.counts, rows.widths, strict=True):
            some = slice(start, start + count)
            logprobs = TokenLogprobs(
                chosen=float32s(self.chosen[some].numpy()),
                width=width,
                top_ids=int32s(self.top_ids[some, :width].numpy().ravel()),
                top=float32s(self.top[some, :width].numpy().ravel()),
            )
            ranks = int32s(self.ranks[some].numpy())
            parts.append(PromptLogprobs(owner=slot, first=first, logprobs=logprobs, ranks=ranks))
            start += count
        return parts


def compute_prompt_logprobs(
    rows: PromptRows,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    vocabulary: int,
) -> ComputedPrompts:
    """Log probabilities of `ids`, and of the most probable tokens at their places; on the device of the hidden states.

    hidden: [P, hidden], those after which `ids` [P] int64 stand; logits_of: [N, hidden] -> raw logits [N, vocabulary] of any
    float dtype. In a gang every rank calls it equally often."""
    width, n_rows = max(rows.widths), max(1, _PIECE_LOGITS // vocabulary)
    pieces = []
    for some, some_ids in zip(hidden.split(n_rows), ids[:, None].split(n_rows), strict=True):
        log_p = torch.log_softmax(logits_of(some).float(), -1)
        chosen, top_ids = log_p.gather(-1, some_ids), greatest_ids(log_p, width)
        pieces.append((chosen.squeeze(-1), (log_p > chosen).sum(-1) + 1, top_ids, log_p.gather(-1, top_ids)))
    columns = [torch.cat(column) for column in zip(*pieces, strict=True)]
    return ComputedPrompts(rows, *columns)
