"""The tables of a rank's slots on its device: tokens, pages, sampling. Plans bring the differences. Captured steps read and
advance the tables, so a step needs nothing from the host but the list of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.sampling_table import SAMPLING_ROW, SamplingTable, greedy_rows
from gpu_workers.batch.step_arrays import draft_places
from gpu_workers.batch.uploads import upload, upload_together
from messages.steps import PAGE_TOKENS, Plan

SAMPLING_WORDS = SAMPLING_ROW.itemsize // 8


@dataclass(frozen=True)
class DeviceState:
    """Tables by slot. Slots 0 .. n_slots - 1 are the scheduler's; slot n_slots is the dummy that fills up batches.

    The dummy's tokens are 0 and all its pages are the dummy page, a page of the pool that the scheduler never assigns;
    padding rows write to it. Its position stays 0 and it is greedy.

    Rules: `tokens[slot, p]` is the token at position p, prompt or generated. The host writes prompts; steps that sample write
    position p + 1 themselves, so the host never sends a sampled token back. Entries after the known tokens are undefined.
    """

    tokens: torch.Tensor  # [n_slots + 1, max_length + 1] int32; one more than the length, for the last sampled token
    pages: torch.Tensor  # [n_slots + 1, max_pages] int32: page ids in order; entries after the held ones are valid ids
    sampling: torch.Tensor  # [n_slots + 1, SAMPLING_WORDS] int64: the bytes of a `SAMPLING_ROW` for each slot
    dummy_page: int

    @property
    def n_slots(self) -> int:
        """Slots without the dummy; also the dummy's index."""
        return int(self.tokens.shape[0]) - 1

    @property
    def max_length(self) -> int:
        """Tokens of one sequence."""
        return int(self.tokens.shape[1]) - 1

    @property
    def device(self) -> torch.device:
        """The device of all tables."""
        return self.tokens.device

    def places(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """[N] int64: flat index into `tokens` of positions [N] of slots [N], both int64 on the host."""
        return slots * self.tokens.shape[1] + positions

    def write_tokens(self, plan: Plan) -> None:
        """Copies the tokens of the plan's new sequences, and its drafts, into the token table."""
        if plan.new:
            _put(self.tokens, _new_places(plan, self), plan.new_tokens)
        if len(plan.draft_ids):
            _put(self.tokens, self.places(*draft_places(plan)), plan.draft_ids)

    def write_pages(self, plan: Plan) -> None:
        """Copies the plan's new entries into the page tables."""
        if len(plan.page_ids):
            _put(self.pages, plan.page_slots.astype(np.int64) * self.pages.shape[1] + plan.page_indices, plan.page_ids)

    def write_sampling(self, plan: Plan, table: SamplingTable) -> None:
        """Copies the rows of the plan's new sequences from `table`, which has them already. Captured steps read them."""
        if plan.new:
            slots = np.array([new.slot for new in plan.new], np.int64)
            index, rows = upload_together((slots, table.values_of(slots).view(np.int64)), self.device)
            self.sampling.index_copy_(0, index, rows.view(-1, SAMPLING_WORDS))


def _put(table: torch.Tensor, places: np.ndarray, values: np.ndarray) -> None:
    """Writes values [N] int32 to flat places [N] int64 of an int32 table, in one upload."""
    index, uploaded = upload_together((places, values.astype(np.int64)), table.device)
    table.view(-1).index_copy_(0, index, uploaded.to(torch.int32))


def _new_places(plan: Plan, state: DeviceState) -> np.ndarray:
    """[len(new_tokens)] int64: where the tokens of the plan's new sequences go."""
    counts = np.array([new.n_tokens for new in plan.new], np.int64)
    slots = np.array([new.slot for new in plan.new], np.int64)
    positions = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return state.places(np.repeat(slots, counts), positions)


def allocate_device_state(n_slots: int, max_length: int, dummy_page: int, device: torch.device | str) -> DeviceState:
    """Tables for n_slots sequences of at most max_length tokens. Page entries start as `dummy_page`, slots as greedy.

    Raises: ValueError naming the number that is too small.
    """
    for name, value, least in (("n_slots", n_slots, 1), ("max_length", max_length, 1), ("dummy_page", dummy_page, 0)):
        if value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    rows = n_slots + 1
    max_pages = -(-max_length // PAGE_TOKENS)
    sampling = greedy_rows(rows).view(np.int64).reshape(rows, SAMPLING_WORDS)
    return DeviceState(
        tokens=torch.zeros((rows, max_length + 1), dtype=torch.int32, device=device),
        pages=torch.full((rows, max_pages), dummy_page, dtype=torch.int32, device=device),
        sampling=upload(sampling, torch.device(device)),
        dummy_page=dummy_page,
    )
