"""One step on the device: the host's index arrays in one upload, tokens and pages gathered from the slots' tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.sampling_table import temperature_of
from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.batch.uploads import upload_together
from messages.steps import Plan


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
    places, positions, kv_slots, sample_index, sample_places, slots, ends = upload_together(
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


def new_places(plan: Plan, state: DeviceState) -> np.ndarray:
    """[len(new_tokens)] int64: where the tokens of the plan's new sequences go."""
    counts = np.array([new.n_tokens for new in plan.new], np.int64)
    slots = np.array([new.slot for new in plan.new], np.int64)
    positions = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return flat_places(state, np.repeat(slots, counts), positions)


def write_sampling(plan: Plan, state: DeviceState) -> None:
    """The new sequences' sampling, for the kernels that sample on the device."""
    wishes = [new.sampling for new in plan.new]
    whole = (
        np.array([new.slot for new in plan.new], np.int64),
        np.array([sampling.top_k for sampling in wishes], np.int64),
        np.array([sampling.seed for sampling in wishes], np.int64),
    )
    real = (
        np.array([temperature_of(sampling) for sampling in wishes], np.float32),
        np.array([sampling.top_p for sampling in wishes], np.float32),
    )
    slots, top_k, seed = upload_together(whole, state.device)
    temperature, top_p = upload_together(real, state.device)
    state.top_k.index_copy_(0, slots, top_k.to(torch.int32))
    state.seed.index_copy_(0, slots, seed)
    state.temperature.index_copy_(0, slots, temperature)
    state.top_p.index_copy_(0, slots, top_p)
