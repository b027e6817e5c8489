"""How attention of many tokens is cut into tiles, and the list of tiles. Pure numpy; kernels read the list on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TILE_FIELDS = 7
WIDENED_BLOCK = 64  # widened keys of a row begin at a multiple of it, and are filled up to one
LEAST_WIDENED_TOKENS = 128  # a key read by fewer tokens is widened as it is read
_FROM_PAGES = -1  # instead of a place among widened keys


@dataclass(frozen=True)
class TileShape:
    """The cut of one kernel: (token, head) pairs of a tile, keys at a time, warps and stages of a program."""

    pairs: int
    keys: int
    warps: int
    stages: int

    def tokens(self, group: int) -> int:
        """Tokens of one tile when `group` query heads share a kv head."""
        return self.pairs // group


def list_tiles(
    table_rows: np.ndarray, starts: np.ndarray, counts: np.ndarray, offsets: np.ndarray, tokens: int, room: int = 0
) -> np.ndarray:
    """[n_tiles, TILE_FIELDS] int64: row of the page table, flat index of the first token, tokens left in the row, position of
    the first token, keys of the row, where these begin among the widened keys (-1: they are not widened), tiles of the row.
    Longest work first, so that the last programs are short ones.

    table_rows, starts, counts, offsets: [R] integers, for each row: its row of the page table, the position of its first token,
    its tokens in the step, the flat index of its first token. tokens: of one tile. room: for widened keys, see
    `kernels.widened_keys`. A tile of zeros does nothing."""
    starts, counts, offsets = (array.astype(np.int64) for array in (starts, counts, offsets))
    per_row = -(-counts // tokens)
    row = np.repeat(np.arange(len(counts)), per_row)
    within = (np.arange(len(row)) - np.repeat(np.cumsum(per_row) - per_row, per_row)) * tokens
    position, ends = starts[row] + within, starts + counts
    columns = (table_rows[row], offsets[row] + within, counts[row] - within, position, ends[row])
    tiles = np.stack((*columns, _widened_places(counts, ends, room)[row], per_row[row]), 1)
    return tiles[np.argsort(-position, kind="stable")]


def _widened_places(counts: np.ndarray, ends: np.ndarray, room: int) -> np.ndarray:
    """[R] int64: where the keys of each row begin among the widened ones, or -1. Rows with the most tokens come first.
    counts, ends: [R] int64, tokens and keys of each row."""
    places, taken = np.full(len(counts), _FROM_PAGES), 0
    if room == 0:
        return places
    for row in np.argsort(-counts, kind="stable"):
        size = -(-int(ends[row]) // WIDENED_BLOCK) * WIDENED_BLOCK
        if counts[row] >= LEAST_WIDENED_TOKENS and taken + size <= room:
            places[row], taken = taken, taken + size
    return places
