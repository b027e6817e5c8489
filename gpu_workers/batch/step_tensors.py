"""One step as the model sees it: a flat batch of tokens with the page tables of its rows. The contract between the runner
(which builds it) and the models and attention back ends (which read it)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class DeviceTiles:
    """The long rows of a step whose numbers only the device knows: a captured one, whose rows change from run to run."""

    tiles: torch.Tensor  # [n_tiles, TILE_FIELDS] int64, device: see attention_tiles; tiles of zeros do nothing
    page_table: torch.Tensor  # [slots, max_pages] int32, device: what a tile's first field points into


@dataclass(frozen=True)
class StepTensors:
    """T tokens in R rows. Rows of one token ("decode rows") come first: flat token i is row i for i < n_decode.

    Every token's key and value are written to its KV slot before any attention of the same layer reads, so rows may share
    pages that other rows of the same step write. With `device_tiles` the fields of rows tell of decode rows only.
    """

    token_ids: torch.Tensor  # [T] int64, device
    positions: torch.Tensor  # [T] int64, device: position in its sequence
    kv_slots: torch.Tensor  # [T] int64, device: page id * PAGE_TOKENS + offset in the page, where key and value go
    page_table: torch.Tensor  # [R, P] int32, device: page ids of each row, in order; entries behind the length are any valid id
    lengths: torch.Tensor  # [R] int32, device: keys that the row's last token sees (its position + 1)
    n_decode: int  # rows of one token, at the front
    row_starts: np.ndarray  # [R] int32, host: position of the row's first token
    row_counts: np.ndarray  # [R] int32, host: tokens of the row in this step
    row_offsets: np.ndarray  # [R] int32, host: index of the row's first token in the flat batch
    sample_index: torch.Tensor | None  # [S] int64, device: flat tokens after which a token is sampled; None: all, in order
    device_tiles: DeviceTiles | None = None

    @property
    def n_tokens(self) -> int:
        """T."""
        return int(self.token_ids.shape[0])

    @property
    def n_rows(self) -> int:
        """R."""
        return int(self.page_table.shape[0])
