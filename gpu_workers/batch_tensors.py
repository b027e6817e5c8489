"""One step on the device: the host's index arrays in one upload, tokens and pages gathered from the slots' tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.device_state import DeviceState
from gpu_workers.step_arrays import StepArrays
from gpu_workers.step_tensors import StepTensors


@dataclass(frozen=True)
class StepBatch:
    """What the runner needs for one step: the model's view and where the sampled tokens go."""

    tensors: StepTensors
    sample_places: torch.Tensor  # [S] int64: flat index into `DeviceState.tokens`


def flat_places(state: DeviceState, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """[N] int64: flat index into `state.tokens` of positions [N] of slots [N]."""
    return slots * state.tokens.shape[1] + positions


def build_batch(step: StepArrays, state: DeviceState) -> StepBatch:
    """The step on the state's device. The state must already hold the plan's tokens, pages and drafts."""
    places, positions, kv_slots, sample_index, sample_places, slots, ends = upload(
        (
            flat_places(state, step.token_slots, step.positions),
            step.positions,
            step.kv_slots,
            step.sample_index,
            flat_places(state, step.sample_slots, step.sample_positions),
            step.slots,
            step.starts + step.counts,
        ),
        state.device,
    )
    tensors = StepTensors(
        token_ids=state.tokens.view(-1).index_select(0, places).to(torch.int64),
        positions=positions,
        kv_slots=kv_slots,
        page_table=state.pages[:, : step.n_pages_wide].index_select(0, slots),
        lengths=ends.to(torch.int32),
        n_decode=step.n_decode,
        row_starts=step.starts.astype(np.int32),
        row_counts=step.counts.astype(np.int32),
        row_offsets=step.offsets.astype(np.int32),
        sample_index=sample_index,
    )
    return StepBatch(tensors, sample_places)


def upload(arrays: tuple[np.ndarray, ...], device: torch.device) -> list[torch.Tensor]:
    """int64 arrays as tensors on the device, in one copy that does not wait for it."""
    if device.type == "cpu":
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    packed = torch.from_numpy(np.concatenate(arrays)).pin_memory().to(device, non_blocking=True)
    return list(packed.split([len(array) for array in arrays]))
