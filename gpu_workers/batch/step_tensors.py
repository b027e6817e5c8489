"""One step as tensors: a flat batch of tokens with the page tables of its rows. The runner builds it; models and
attention back ends read it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.batch.uploads import upload_together

NO_TOKENS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class DeviceTiles:
    """The rows of more than one token of a captured step, read from device memory because they change from run to run."""

    tiles: torch.Tensor  # [n_tiles, TILE_FIELDS] int64, device: see `kernels.attention.tiles`; tiles of zeros do nothing
    page_table: torch.Tensor  # [slots, max_pages] int32, device: a tile names its row
    may_widen: bool = False  # the keys of some tiles may have a place among widened keys
    may_read_pages: bool = True  # those of some may have none


@dataclass(frozen=True)
class StepTensors:
    """T tokens in R rows. Rows of one token ("decode rows") come first: flat token i is row i for i < n_decode.

    In each layer all keys and values are written before any attention reads, so rows may share pages that other rows of the
    same step write. In a step of decode rows alone no row may read what another one writes, because one kernel may do both.
    With `device_tiles`, the fields of rows describe decode rows only.
    """

    token_ids: torch.Tensor  # [T] int64, device
    positions: torch.Tensor  # [T] int64, device: position in its sequence
    slot_mapping: torch.Tensor  # [T] int64, device: page id * PAGE_TOKENS + offset in the page, where key and value go
    page_table: torch.Tensor  # [R, P] int32, device: page ids of each row, in order; entries after the length are any valid id
    lengths: torch.Tensor  # [R] int32, device: keys that the row's last token sees (its position + 1)
    n_decode: int  # rows of one token, at the front
    row_starts: np.ndarray  # [R] int32, host: position of the row's first token
    row_counts: np.ndarray  # [R] int32, host: tokens of the row in this step
    row_offsets: np.ndarray  # [R] int32, host: index of the row's first token in the flat batch
    sample_index: torch.Tensor | None  # [S] int64, device: flat tokens after which a token is sampled; None: all, in order
    device_tiles: DeviceTiles | None = None
    arrives: bool = False  # a captured step whose pages may still be loaded, see `KvPages.arriving`

    @property
    def n_tokens(self) -> int:
        """T, the tokens of the step."""
        return int(self.token_ids.shape[0])

    @property
    def n_rows(self) -> int:
        """R, the rows of the step."""
        return int(self.page_table.shape[0])


@dataclass(frozen=True)
class StepBatch:
    """One step for the runner: the model's input, and where the sampled tokens go."""

    tensors: StepTensors
    sample_places: torch.Tensor  # [S] int64: flat index into `DeviceState.tokens`


def build_batch(step: StepArrays, state: DeviceState, prompt_index: np.ndarray = NO_TOKENS) -> StepBatch:
    """The tensors of a step, on the state's device. The state must already hold the plan's tokens, pages and drafts.

    prompt_index: [P] int64, flat tokens whose hidden states are wanted after those of the samples."""
    places, positions, slot_mapping, sample_index, sample_places, slots, ends = upload_together(
        (
            state.places(step.token_slots, step.positions),
            step.positions,
            step.slot_mapping,
            np.concatenate((step.sample_index, prompt_index)) if len(prompt_index) else step.sample_index,
            state.places(step.sample_slots, step.sample_positions),
            step.slots,
            step.starts + step.counts,
        ),
        state.device,
    )
    tensors = StepTensors(
        token_ids=state.tokens.view(-1).index_select(0, places).to(torch.int64),
        positions=positions,
        slot_mapping=slot_mapping,
        page_table=state.pages[:, : step.n_pages_wide].index_select(0, slots),
        lengths=ends.to(torch.int32),
        n_decode=step.n_decode,
        row_starts=step.starts.astype(np.int32),
        row_counts=step.counts.astype(np.int32),
        row_offsets=step.offsets.astype(np.int32),
        sample_index=sample_index,
    )
    return StepBatch(tensors, sample_places)
