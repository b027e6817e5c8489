"""How products with a fixed order of additions are cut: the order by the weight alone, tiles by the number of rows as well.

`MEASURED` holds what `python3 -m ops.gpu.fixed_product_sweep` has found fastest on an H200; weights that it does not name are
cut by rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

_PROGRAMS = 99  # that keep the 132 multiprocessors of an H200 busy enough
_MANY_PROGRAMS = 264
_SEGMENTED_OUTPUTS, _SEGMENTED_INPUTS = 8192, 2048  # weights with at most so many rows and at least so many columns
_FEW_ROWS = 64


@dataclass(frozen=True)
class ProductShape:
    """How one product is cut. Only `segments` changes bits, so it must not depend on the number of rows."""

    rows: int  # of a tile
    outs: int  # columns of a tile
    k_block: int  # inputs at a time
    warps: int
    stages: int
    segments: int = 1  # parts of the sum over the inputs, which are added in order
    is_split: bool = False  # each segment of a tile has a program of its own
    prefetch: int = 0  # lines of 128 bytes of each weight row to bring into the L2 cache while the kernel before still runs


@dataclass(frozen=True)
class MeasuredShapes:
    """The fastest cuts of one weight: by_rows[n] is for at most n rows and more than the next smaller n."""

    segments: int
    by_rows: Mapping[int, ProductShape] = field(default_factory=dict[int, ProductShape])


MEASURED: dict[tuple[int, int], MeasuredShapes] = {  # by (rows, columns) of the weight
    (960, 576): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 16, 64, 1, 6, 1, prefetch=8),
            8: ProductShape(16, 16, 64, 1, 6, 1, prefetch=8),
            64: ProductShape(64, 16, 64, 4, 6, 1),
            256: ProductShape(64, 32, 64, 4, 4, 1),
        },
    ),
    (576, 576): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 16, 64, 1, 6, 1, prefetch=8),
            8: ProductShape(16, 16, 64, 1, 6, 1, prefetch=8),
            64: ProductShape(64, 32, 64, 4, 4, 1),
            256: ProductShape(64, 32, 64, 4, 4, 1),
        },
    ),
    (3072, 576): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 16, 64, 1, 6, 1, prefetch=8),
            8: ProductShape(16, 16, 64, 1, 6, 1, prefetch=8),
            64: ProductShape(64, 32, 256, 4, 3, 1),
            256: ProductShape(64, 64, 64, 4, 6, 1),
        },
    ),
    (576, 1536): MeasuredShapes(
        4,
        {
            1: ProductShape(16, 32, 64, 2, 6, 4, is_split=True),
            8: ProductShape(16, 32, 64, 2, 6, 4, is_split=True),
            64: ProductShape(64, 32, 64, 4, 4, 4, is_split=True),
            256: ProductShape(64, 32, 128, 4, 3, 4, is_split=True),
        },
    ),
    (49152, 576): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 64, 64, 4, 6, 1),
            8: ProductShape(16, 64, 64, 4, 6, 1),
            64: ProductShape(64, 128, 64, 4, 4, 1),
            256: ProductShape(128, 128, 64, 8, 3, 1),
        },
    ),
    (6144, 4096): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 32, 128, 2, 4, 1),
            8: ProductShape(16, 16, 256, 1, 3, 1),
            64: ProductShape(64, 32, 128, 4, 4, 1),
            256: ProductShape(128, 128, 64, 8, 4, 1),
        },
    ),
    (4096, 4096): MeasuredShapes(
        2,
        {
            1: ProductShape(16, 32, 128, 2, 4, 2, is_split=True),
            8: ProductShape(16, 32, 128, 2, 4, 2, is_split=True),
            64: ProductShape(64, 64, 128, 4, 4, 2, is_split=True),
            256: ProductShape(128, 128, 64, 8, 4, 2, is_split=True),
        },
    ),
    (28672, 4096): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 64, 256, 4, 3, 1, prefetch=8),
            8: ProductShape(16, 64, 256, 4, 3, 1),
            64: ProductShape(64, 256, 64, 4, 4, 1),
            256: ProductShape(128, 256, 64, 8, 4, 1),
        },
    ),
    (4096, 14336): MeasuredShapes(
        2,
        {
            1: ProductShape(16, 32, 256, 2, 3, 2, is_split=True),
            8: ProductShape(16, 64, 256, 4, 3, 2, is_split=True),
            64: ProductShape(64, 64, 128, 4, 4, 2, is_split=True),
            256: ProductShape(128, 128, 64, 8, 4, 2, is_split=True),
        },
    ),
    (128256, 4096): MeasuredShapes(
        1,
        {
            1: ProductShape(16, 64, 128, 4, 4, 1),
            8: ProductShape(16, 64, 128, 4, 4, 1),
            64: ProductShape(64, 128, 128, 4, 4, 1),
            256: ProductShape(256, 128, 64, 8, 3, 1),
        },
    ),
}


def count_segments(n_out: int, width: int) -> int:
    """The number of segments for a weight [n_out, width]: by this shape alone, never by the number of rows."""
    if (n_out, width) in MEASURED:
        return MEASURED[n_out, width].segments
    return 2 if n_out <= _SEGMENTED_OUTPUTS and width >= _SEGMENTED_INPUTS else 1


def product_shape(n_rows: int, n_out: int, width: int, dtype: torch.dtype) -> ProductShape:
    """The cut for n_rows rows and a weight [n_out, width]: the measured one, or the largest tile that keeps the device busy."""
    if dtype == torch.float32:
        return ProductShape(32, 32, 32, 4, 2)
    segments = count_segments(n_out, width)
    if (n_out, width) in MEASURED:
        fitting = [(rows, shape) for rows, shape in MEASURED[n_out, width].by_rows.items() if n_rows <= rows]
        if fitting:
            return min(fitting, key=lambda pair: pair[0])[1]
    if n_rows <= _FEW_ROWS:
        outs = 64 if n_out * segments >= 6144 else 32 if n_out >= 2048 else 16
        return ProductShape(64, outs, 64, 4, 6, segments, is_split=segments > 1)
    tiles = _count_tiles(n_rows, n_out, 128, 128)
    if segments == 1 and tiles >= 4 * _MANY_PROGRAMS:
        return ProductShape(128, 256, 64, 8, 3)
    is_split = segments > 1 and (tiles < _MANY_PROGRAMS or n_rows <= 128)
    for rows, outs, warps, stages in ((128, 128, 8, 3), (128, 64, 8, 4), (64, 64, 4, 4), (64, 32, 4, 4)):
        if n_rows <= 128 and outs > 64:
            continue
        if _count_tiles(n_rows, n_out, rows, outs) * segments >= _PROGRAMS:
            return ProductShape(rows, outs, 64, warps, stages, segments, is_split)
    return ProductShape(64, 16, 64, 4, 6, segments, is_split)


def _count_tiles(n_rows: int, n_out: int, rows: int, outs: int) -> int:
    return -(-n_rows // rows) * -(-n_out // outs)
