"""A plain scheduler for model tests: sequences with page tables, and steps made of any rows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model
from messages.steps import PAGE_TOKENS


@dataclass
class PagedSequence:
    """Tokens known so far, how many of them have keys and values, and where."""

    tokens: list[int]
    computed: int = 0
    pages: list[int] = field(default_factory=list)


class PagedLoop:
    """Hands out pages in a scattered order and runs steps."""

    def __init__(self, model: Model, n_pages: int = 128) -> None:
        self.model = model
        self.kv = KvPages.allocate(model.kv_shape, n_pages, model.device)
        self._free = [int(page) for page in np.random.default_rng(0).permutation(n_pages)]

    def run(self, rows: Sequence[tuple[PagedSequence, int]]) -> torch.Tensor:
        """Computes the next `count` tokens of each sequence; logits [R, vocabulary] behind each row's last token."""
        for sequence, count in rows:
            while len(sequence.pages) * PAGE_TOKENS < sequence.computed + count:
                sequence.pages.append(self._free.pop())
        rows = sorted(rows, key=lambda row: row[1] != 1)
        step = build_step(rows)
        logits = self.model.logits(self.model.forward(step, self.kv))
        for sequence, count in rows:
            sequence.computed += count
        return logits

    def greedy(self, prompts: Sequence[list[int]], n_tokens: int, chunk_tokens: int) -> list[list[int]]:
        """Continues all prompts together; prompt i enters at step i, in chunks, so that steps mix all kinds of rows."""
        waiting = [PagedSequence(list(prompt)) for prompt in prompts]
        running: list[PagedSequence] = []
        while any(len(s.tokens) < len(p) + n_tokens for s, p in zip(waiting, prompts, strict=True)):
            running = waiting[: len(running) + 1]
            live = [(s, p) for s, p in zip(running, prompts, strict=False) if len(s.tokens) < len(p) + n_tokens]
            rows = [(s, min(chunk_tokens, len(s.tokens) - s.computed)) for s, _ in live]
            rows.sort(key=lambda row: row[1] != 1)
            ids = self.run(rows).argmax(-1).tolist()
            for (sequence, _), token in zip(rows, ids, strict=True):
                if sequence.computed == len(sequence.tokens):
                    sequence.tokens.append(token)
        return [s.tokens[len(p) :] for s, p in zip(waiting, prompts, strict=True)]


def build_step(rows: Sequence[tuple[PagedSequence, int]]) -> StepTensors:
    """Rows of one token first; each row samples behind its last token."""
    starts = np.array([s.computed for s, _ in rows], dtype=np.int32)
    counts = np.array([count for _, count in rows], dtype=np.int32)
    offsets = (np.cumsum(counts) - counts).astype(np.int32)
    width = max(len(s.pages) for s, _ in rows)
    table = np.array([s.pages + [0] * (width - len(s.pages)) for s, _ in rows], dtype=np.int32)
    positions = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, counts, strict=True)])
    row_of = np.repeat(np.arange(len(rows)), counts)
    slots = table[row_of, positions // PAGE_TOKENS].astype(np.int64) * PAGE_TOKENS + positions % PAGE_TOKENS
    ids = np.concatenate([s.tokens[s.computed : s.computed + n] for s, n in rows])
    return StepTensors(
        token_ids=torch.from_numpy(ids.astype(np.int64)),
        positions=torch.from_numpy(positions.astype(np.int64)),
        slot_mapping=torch.from_numpy(slots),
        page_table=torch.from_numpy(table),
        lengths=torch.from_numpy(starts + counts),
        n_decode=int((counts == 1).sum()),
        row_starts=starts,
        row_counts=counts,
        row_offsets=offsets,
        sample_index=torch.from_numpy((offsets + counts - 1).astype(np.int64)),
    )
