"""The sizes of captured steps that hold prompts, and the layout of a step in one of them. Pure numpy.

    [ rows of one token | padding ][ tokens of longer rows | padding ]      padding uses the dummy slot

One int64 array describes a step: see `MixedSize.split`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from gpu_workers.batch.step_arrays import StepArrays
from gpu_workers.cuda.kernels.attention.tiles import TILE_FIELDS

_ROWS = (0, 16, 64, 256, 512)  # decode rows of a size; also the number of slots
_TOKENS = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384)
_ARRIVING_TOKENS = (16, 32, 64, 128, 256, 512)  # few, because most loads end before a later step
_GANG_ROWS, _GANG_TOKENS = (16,), (32, 128, 256, 512, 1024)  # few, because a capture with collectives takes ten times as long
_URGENT_TOKENS = (64, 128, 256, 384, 512, 768, 1024)
_LEAST_LONG_ROWS = 8
_MEAN_TOKENS = 16  # of a long row, in sizes with room for more than _LEAST_LONG_ROWS
_LEAST_SAMPLES = 128  # of long rows, if the size has so many tokens: each draft takes one sample
# Sizes for steps in which many rows verify drafts, such as JSON answers with the forced tokens of their schemas: each token has
# a sample, and a long row has four tokens at least. In other sizes 64 such answers computed half as many tokens again.
_DRAFT_ROWS, _DRAFT_TOKENS, _MEAN_DRAFTED = 64, (64, 128, 192, 256, 384), 4
Flat = TypeVar("Flat", np.ndarray, torch.Tensor)


@dataclass(frozen=True)
class MixedSize:
    """The capacity of a captured step."""

    rows: int  # of one token
    tokens: int  # of longer rows
    samples: int
    tiles: int

    @property
    def n_tokens(self) -> int:
        """Tokens that are computed, padding included."""
        return self.rows + self.tokens

    @property
    def n_words(self) -> int:
        """Length of the array that `split` takes."""
        return 2 * self.n_tokens + 3 * self.samples + TILE_FIELDS * self.tiles

    def split(self, words: Flat) -> list[Flat]:
        """Views of words [n_words] int64: slots and positions of the tokens, each [n_tokens]; slots, positions and flat tokens
        of the samples, each [samples]; tiles [TILE_FIELDS * tiles]. A sample's position is that of the token before it."""
        ends = np.cumsum([self.n_tokens, self.n_tokens, *[self.samples] * 3, TILE_FIELDS * self.tiles]).tolist()
        return [words[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def has_room_for(self, step: StepArrays, n_tiles: int) -> bool:
        """True if the step fits into this size."""
        n_long = len(step.token_slots) - step.n_decode
        n_samples = len(step.sample_index)
        return step.n_decode <= self.rows and n_long <= self.tokens and n_samples <= self.samples and n_tiles <= self.tiles

    def place(self, step: StepArrays, tiles: np.ndarray, dummy_slot: int, words: np.ndarray) -> None:
        """Writes the step into words [n_words] int64 on the host. tiles: [n_tiles, TILE_FIELDS] int64."""
        slots, positions, sample_slots, sample_positions, sample_index, device_tiles = self.split(words)
        n, shift = step.n_decode, self.rows - step.n_decode
        for target, source, filler in ((slots, step.token_slots, dummy_slot), (positions, step.positions, 0)):
            target[:n], target[n : self.rows] = source[:n], filler
            end = self.rows + len(source) - n
            target[self.rows : end], target[end:] = source[n:], filler
        m = len(step.sample_index)
        sample_slots[:m], sample_slots[m:] = step.sample_slots, dummy_slot
        sample_positions[:m], sample_positions[m:] = step.sample_positions - 1, 0
        sample_index[:m], sample_index[m:] = step.sample_index + shift * (step.sample_index >= n), 0
        table = device_tiles.reshape(-1, TILE_FIELDS)
        table[: len(tiles)], table[len(tiles) :] = tiles, 0
        table[: len(tiles), 1] += shift


def mixed_sizes(n_slots: int, max_tokens: int, tile_tokens: int, n_ranks: int = 1) -> tuple[MixedSize, ...]:
    """The sizes to capture, the smallest first: several numbers of decode rows, each with several numbers of prompt tokens.

    max_tokens: limit of prompt tokens; tile_tokens: tokens of a tile of prefill attention; n_ranks: of the gang; several ranks
    get fewer sizes, so that they restart quickly.
    """
    rows_of, tokens_of = (_ROWS, _TOKENS) if n_ranks == 1 else (_GANG_ROWS, _GANG_TOKENS)
    all_rows = sorted({min(rows, n_slots) for rows in (*rows_of, n_slots)})
    sizes = [_size(rows, tokens, n_slots, tile_tokens) for tokens in tokens_of if tokens <= max_tokens for rows in all_rows]
    if n_ranks == 1 and n_slots >= _DRAFT_ROWS:
        most = max((size.samples for size in sizes), default=0)
        sizes += [_draft_size(tokens, tile_tokens, most) for tokens in _DRAFT_TOKENS if tokens <= max_tokens]
    return tuple(sorted(set(sizes), key=lambda size: (size.n_tokens, size.rows, size.samples, size.tiles)))


def urgent_sizes(max_tokens: int, tile_tokens: int) -> tuple[MixedSize, ...]:
    """The sizes to capture for urgent steps, which have a few long rows alone, the smallest first. Arguments: as above."""
    rows = _LEAST_LONG_ROWS
    return tuple(MixedSize(0, tokens, rows, tokens // tile_tokens + rows) for tokens in _URGENT_TOKENS if tokens <= max_tokens)


def arriving_sizes(sizes: Sequence[MixedSize]) -> list[MixedSize]:
    """Those of one prompt alone, for the rest of a prompt whose first pages are being loaded. sizes: as of `mixed_sizes`."""
    least = min((size.rows for size in sizes), default=0)
    return [size for size in sizes if size.rows == least and size.tokens in _ARRIVING_TOKENS]


def _size(rows: int, tokens: int, n_slots: int, tile_tokens: int) -> MixedSize:
    long_rows = min(n_slots, max(_LEAST_LONG_ROWS, tokens // _MEAN_TOKENS))
    samples = max(min(tokens, _LEAST_SAMPLES), long_rows)
    return MixedSize(rows, tokens, rows + samples, tokens // tile_tokens + long_rows)


def _draft_size(tokens: int, tile_tokens: int, most_samples: int) -> MixedSize:
    long_rows = min(_DRAFT_ROWS, tokens // _MEAN_DRAFTED)
    return MixedSize(_DRAFT_ROWS, tokens, min(_DRAFT_ROWS + tokens, most_samples), tokens // tile_tokens + long_rows)


def choose_size(sizes: Sequence[MixedSize], step: StepArrays, n_tiles: int) -> MixedSize | None:
    """The smallest size that the step fits in, or None. sizes: in the order of `mixed_sizes`."""
    return next((size for size in sizes if size.has_room_for(step, n_tiles)), None)
