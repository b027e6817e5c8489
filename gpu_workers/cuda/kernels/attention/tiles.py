"""How attention of many tokens is cut into tiles, and the list of tiles. Pure numpy; kernels read the list on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TILE_FIELDS = 5


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


def list_tiles(table_rows: np.ndarray, starts: np.ndarray, counts: np.ndarray, offsets: np.ndarray, tokens: int) -> np.ndarray:
    """[n_tiles, TILE_FIELDS] int64: row of the page table, flat index of the first token, tokens left in the row, position of
    the first token, keys of the row. Longest work first, so that the last programs are short ones.

    table_rows, starts, counts, offsets: [R] integers, for each row: its row of the page table, the position of its first token,
    its tokens in the step, the flat index of its first token. tokens: of one tile. A tile of zeros does nothing."""
    starts, counts, offsets = (array.astype(np.int64) for array in (starts, counts, offsets))
    per_row = -(-counts // tokens)
    row = np.repeat(np.arange(len(counts)), per_row)
    within = (np.arange(len(row)) - np.repeat(np.cumsum(per_row) - per_row, per_row)) * tokens
    position = starts[row] + within
    tiles = np.stack((table_rows[row], offsets[row] + within, counts[row] - within, position, (starts + counts)[row]), 1)
    return tiles[np.argsort(-position, kind="stable")]
