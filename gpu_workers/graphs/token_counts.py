"""The token counts of each slot on the device, from which captured steps compute penalties and bans.

A captured step counts the token that it samples. Whatever else changes the tokens of a slot (a new sequence, a step that no
graph ran, drafts) makes its counts stale: they are made again from the slot's tokens before the next captured step. So the
counts are always a function of the tokens alone, and nothing has to be carried over when a gang takes over for another one.
"""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.batch.uploads import upload, upload_together
from gpu_workers.cuda.kernels.sampling.counts import count_tokens
from gpu_workers.cuda.kernels.sampling.logits import BANNED

_STALE = -1


class TokenCounts:
    """Counts of all slots. Not thread-safe; work on the device is queued on the current stream."""

    def __init__(self, state: DeviceState, vocabulary: int) -> None:
        self.values = torch.zeros((state.n_slots + 1, vocabulary), dtype=torch.int32, device=state.device)  # see `logits`
        self._state = state
        self._n_counted = np.full(state.n_slots, _STALE, np.int64)  # tokens whose counts each slot has

    def invalidate(self, slots: np.ndarray | slice = slice(None)) -> None:
        """The tokens of these slots [N] int64 have changed; all slots by default."""
        self._n_counted[slots] = _STALE

    def prepare(self, slots: np.ndarray, positions: np.ndarray, n_steps: int, table: SamplingTable) -> None:
        """Makes stale counts again, before n_steps captured steps sample the tokens from positions[i] of slots[i] on.

        slots, positions: [N] int64, on the host. Rows without penalties and bans cost one comparison on the host."""
        is_edited = table.is_edited(slots, positions)
        if not is_edited.any():
            return
        slots, positions = slots[is_edited], positions[is_edited]
        is_stale = self._n_counted[slots] != positions
        if is_stale.any():
            self._count(slots[is_stale], positions[is_stale], table)
        self._n_counted[slots] = positions + n_steps

    def prepare_mixed(self, step: StepArrays, table: SamplingTable) -> None:
        """As `prepare`, for a captured step that may verify drafts. How many of these are accepted is not known when it is
        launched, so the counts of their slots are stale after it."""
        first = np.cumsum(step.result_widths) - step.result_widths
        self.prepare(step.sample_slots[first], step.sample_positions[first], 1, table)
        if step.has_drafts:
            self.invalidate(step.sample_slots[first[step.result_widths > 1]])

    def _count(self, slots: np.ndarray, positions: np.ndarray, table: SamplingTable) -> None:
        slot_ids, lengths = upload_together((slots, positions), self.values.device)
        count_tokens(slot_ids, lengths, self._state, self.values)
        rows = table.gather(slots, positions)
        vocabulary = self.values.shape[1]
        banned = [slot * vocabulary + np.unique(ids) for i, slot in enumerate(slots) if (ids := rows.banned_of(i)) is not None]
        if banned:
            places, flat = upload(np.concatenate(banned), self.values.device), self.values.view(-1)
            flat.index_copy_(0, places, flat.index_select(0, places) | BANNED.value)
