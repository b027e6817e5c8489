"""The tables of a rank's slots on its device: tokens, pages, sampling. Plans bring the differences. Captured steps read and
advance the tables, so a step needs nothing from the host but the list of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.sampling_table import SAMPLING_ROW, SamplingTable, greedy_rows
from gpu_workers.batch.step_arrays import draft_places
from gpu_workers.batch.uploads import upload, upload_together
from messages.steps import PAGE_TOKENS, Plan

SAMPLING_WORDS = SAMPLING_ROW.itemsize // 8
_FILLER = np.zeros(1, np.int32)  # of the last word of an upload


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

    def write(self, plan: Plan, sampling: SamplingTable | None = None) -> None:
        """Copies what a plan changes into the tables, all of it in one upload: the tokens of its new sequences and its drafts,
        its new entries of page tables, and from `sampling`, which has them already, the rows of its new sequences. sampling
        None: no captured step reads them."""
        writes = [*self._token_writes(plan), *self._page_writes(plan)]
        if sampling is not None and plan.new:
            slots = np.array([new.slot for new in plan.new], np.int64)
            writes.append(_Write(self.sampling, slots, sampling.values_of(slots)))
        if not writes:
            return
        uploaded = upload_together([array for one in writes for array in (one.places, one.words)], self.device)
        for one, places, words in zip(writes, uploaded[::2], uploaded[1::2], strict=True):
            one.put(places, words)

    def _token_writes(self, plan: Plan) -> Iterator[_Write]:
        flat = self.tokens.view(-1)
        if plan.new:
            yield _Write(flat, _new_places(plan, self), plan.new_tokens)
        if len(plan.draft_ids):
            yield _Write(flat, self.places(*draft_places(plan)), plan.draft_ids)

    def _page_writes(self, plan: Plan) -> Iterator[_Write]:
        if len(plan.page_ids):
            places = plan.page_slots.astype(np.int64) * self.pages.shape[1] + plan.page_indices
            yield _Write(self.pages.view(-1), places, plan.page_ids)


class _Write:
    """Values for some rows of a table on the device."""

    def __init__(self, table: torch.Tensor, places: np.ndarray, values: np.ndarray) -> None:
        """table: [rows, ...]; places: [N] int64, rows; values: [N] int32, or [N] of 8-byte words with the bytes of these
        rows."""
        self._table, self._n_filled = table, values.nbytes % 8 // 4
        filled = np.concatenate((values.view(np.int32), _FILLER[: self._n_filled]))
        self.places, self.words = places, filled.view(np.int64)

    def put(self, places: torch.Tensor, words: torch.Tensor) -> None:
        """Write the uploaded values to the uploaded places."""
        values = words.view(self._table.dtype)
        if self._n_filled:
            values = values[: -self._n_filled]
        self._table.index_copy_(0, places, values.view(-1, *self._table.shape[1:]))


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
