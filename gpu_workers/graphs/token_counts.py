"""The token counts of each slot on the device, from which captured steps compute rules, penalties and bans.

A captured step counts the token that it samples. Whatever else changes the tokens of a slot (a new sequence, a step that no
graph ran, drafts) makes its counts stale: they are made again from the slot's tokens before the next captured step. So the
counts are always a function of the tokens alone, and nothing has to be carried over when a gang takes over for another one.
"""

from __future__ import annotations

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.batch.slot_rules import SlotRules
from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.batch.uploads import upload, upload_together
from gpu_workers.cuda.kernels.sampling.counts import count_tokens
from gpu_workers.cuda.kernels.sampling.logits import BANNED, BIAS_SHIFT, N_BIASES

_STALE = -1
_FORBIDDEN = np.float32(-np.inf).view(np.int32)


class TokenCounts:
    """Counts of all slots. Not thread-safe; work on the device is queued on the current stream."""

    def __init__(self, state: DeviceState, vocabulary: int) -> None:
        # see `kernels.sampling.logits`
        self.values = torch.zeros((state.n_slots + 1, vocabulary + N_BIASES.value), dtype=torch.int32, device=state.device)
        self._state, self._vocabulary = state, vocabulary
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
        rows, width = table.gather(slots, positions), self.values.shape[1]
        banned = [slot * width + np.unique(ids) for i, slot in enumerate(slots) if (ids := rows.banned_of(i)) is not None]
        if banned:
            places, flat = upload(np.concatenate(banned), self.values.device), self.values.view(-1)
            flat.index_copy_(0, places, flat.index_select(0, places) | BANNED.value)
        for i, slot in enumerate(slots.tolist()):
            if (rules := rows.rules_of(i)) is not None:
                self._write_biases(slot, rules)

    def _write_biases(self, slot: int, rules: SlotRules) -> None:
        """Adds rules to the counts of a slot, which has none. A slot has few different biases: each token has the index of its
        own."""
        row, device = self.values[slot], self.values.device
        ids, biases = rules.all_biases()
        values, index = np.unique(biases, return_inverse=True)
        bits = values.astype(np.float32).view(np.int32)
        forbidden = 0
        if rules.allowed is not None:
            bits, forbidden = np.append(bits, _FORBIDDEN), len(bits) + 1
            row[: self._vocabulary].add_(forbidden << BIAS_SHIFT.value)
        row[self._vocabulary + 1 : self._vocabulary + 1 + len(bits)].copy_(upload(bits, device))
        places, shifted = upload_together((ids, (index + 1 - forbidden) << BIAS_SHIFT.value), device)
        row.index_add_(0, places, shifted.to(torch.int32))
