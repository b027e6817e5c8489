"""Steps of zeros, which are run to measure memory and to compile kernels."""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model
from messages.steps import PAGE_TOKENS


def fullest_rows(step_tokens: int, max_length: int) -> list[int]:
    """Tokens of each row of the largest step that an engine may be asked for: as few prompts of at most `max_length` tokens as
    hold `step_tokens` together (or one less, because no row of several has a single token)."""
    n_whole, rest = divmod(step_tokens, max_length)
    return [max_length] * n_whole + [rest] * (rest > 1 or not n_whole)


def even_rows(n_tokens: int, max_length: int) -> list[int]:
    """The tokens of the fewest prompts that have n_tokens together and at most max_length each; positions end there."""
    n_rows = -(-n_tokens // max_length)
    return [n_tokens // n_rows + (index < n_tokens % n_rows) for index in range(n_rows)]


def run_empty_step(model: Model, kv: KvPages, rows: list[int]) -> torch.Tensor:
    """Runs one step of prompts of zeros, and returns the logits [1, vocabulary] of its last token.

    rows: tokens of each prompt, those of one token first; each prompt gets the same number of the pages of `kv`.

    Raises: ValueError when these pages do not hold the longest prompt."""
    device, pages_each = model.device, kv.n_pages // len(rows)
    if max(rows) > pages_each * PAGE_TOKENS:
        raise ValueError(f"a prompt of {max(rows)} tokens does not fit {pages_each} of the {kv.n_pages} pages")
    counts = np.array(rows, np.int32)
    offsets = (np.cumsum(counts) - counts).astype(np.int32)
    lengths = torch.from_numpy(counts).to(device)
    positions = torch.cat([torch.arange(count, device=device) for count in rows])
    row_of_token = torch.repeat_interleave(torch.arange(len(rows), device=device), lengths.long())
    step = StepTensors(
        token_ids=torch.zeros(len(positions), dtype=torch.int64, device=device),
        positions=positions,
        slot_mapping=row_of_token * (pages_each * PAGE_TOKENS) + positions,
        page_table=torch.arange(len(rows) * pages_each, dtype=torch.int32, device=device).view(len(rows), pages_each),
        lengths=lengths,
        n_decode=next((index for index, count in enumerate(rows) if count != 1), len(rows)),
        row_starts=np.zeros(len(rows), np.int32),
        row_counts=counts,
        row_offsets=offsets,
        sample_index=torch.full((1,), len(positions) - 1, dtype=torch.int64, device=device),
    )
    return model.logits(model.forward(step, kv))
