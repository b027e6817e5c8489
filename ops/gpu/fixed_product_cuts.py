"""Which cuts of a product with a fixed order of additions are worth timing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpu_workers.cuda.kernels.fixed_shapes import ProductShape

ROW_COUNTS = (1, 8, 64, 256)
_WGMMA_ROWS, _WGMMA_WARPS = 64, 4  # smaller tiles and fewer warps use the older instruction, mma.sync
_SHARED_BYTES = 227 * 1024
_LINES = 8  # brought into the L2 cache ahead
_MANY_OUTPUTS = 40_000  # from here on a head
_FEWEST_PROGRAMS = 12

_FEW_ROWS = tuple(
    ProductShape(rows, outs, k_block, warps, stages)
    for rows, outs, warps in ((64, 16, 4), (64, 32, 4), (64, 64, 4), (64, 128, 4), (16, 16, 1), (16, 32, 2), (16, 64, 4))
    for k_block, stages in ((64, 6), (128, 4), (256, 3))
)
_MANY_ROWS = (
    ProductShape(64, 16, 64, 4, 6), ProductShape(64, 16, 128, 4, 4), ProductShape(64, 32, 64, 4, 4),
    ProductShape(64, 32, 128, 4, 3), ProductShape(64, 64, 64, 4, 4), ProductShape(64, 64, 64, 4, 6),
    ProductShape(64, 64, 128, 4, 3), ProductShape(64, 128, 64, 4, 4), ProductShape(64, 256, 64, 4, 4),
    ProductShape(128, 32, 64, 8, 4), ProductShape(128, 64, 64, 8, 4), ProductShape(128, 64, 64, 4, 4),
    ProductShape(128, 64, 128, 8, 3), ProductShape(128, 128, 64, 8, 3), ProductShape(128, 128, 64, 8, 4),
    ProductShape(128, 128, 64, 4, 4), ProductShape(128, 256, 64, 8, 3), ProductShape(128, 256, 64, 8, 4),
    ProductShape(256, 128, 64, 8, 3),
)  # fmt: skip


def segment_choices(n_out: int, width: int) -> tuple[int, ...]:
    """The numbers of segments to try for a weight [n_out, width]."""
    if n_out >= _MANY_OUTPUTS:
        return (1,)
    if width < 1024:
        return (1, 2)
    return (1, 2, 4) if width < 8192 else (2, 4, 8)


def cuts_of(n_rows: int, n_out: int, segments: int) -> list[ProductShape]:
    """The cuts to time at n_rows rows of a weight of n_out rows. Of few rows, segments always have programs of their own."""
    cuts = _FEW_ROWS if n_rows < 64 else _MANY_ROWS if n_rows > 64 else (*_FEW_ROWS, *_MANY_ROWS)
    found: dict[ProductShape, None] = {}
    for cut in cuts:
        is_narrow = n_out >= 8192 and cut.outs < 64
        wastes = cut.rows > max(64, n_rows) or (n_rows >= 64 and cut.rows < 64)
        fits = (cut.rows + cut.outs) * cut.k_block * 2 * cut.stages <= _SHARED_BYTES
        if is_narrow or wastes or not fits:
            continue
        for is_split in (False,) if segments == 1 else (True,) if n_rows < 64 else (False, True):
            programs = -(-n_rows // cut.rows) * -(-n_out // cut.outs) * (segments if is_split else 1)
            if programs >= _FEWEST_PROGRAMS:
                found[replace(cut, segments=segments, is_split=is_split)] = None
    return list(found)


def with_prefetch(cut: ProductShape) -> ProductShape:
    """The same cut with the first inputs of the weight brought into the cache ahead."""
    return replace(cut, prefetch=_LINES)


def every_cut(weights: Iterable[tuple[int, int]]) -> list[ProductShape]:
    """Each cut that may be timed for weights (n_out, width), once."""
    found: dict[ProductShape, None] = {}
    for n_out, width in weights:
        for segments in segment_choices(n_out, width):
            found[ProductShape(64, 64, 64, 4, 3, segments)] = None  # the reference
            for n_rows in ROW_COUNTS:
                cuts = cuts_of(n_rows, n_out, segments)
                found.update(dict.fromkeys([*cuts, *(map(with_prefetch, cuts) if n_rows < 64 else ())]))
    return list(found)


def instruction_of(shape: ProductShape) -> str:
    """The instruction of the tensor cores that Triton chooses for this cut on an H100 or H200."""
    is_wide = shape.rows >= _WGMMA_ROWS and shape.warps >= _WGMMA_WARPS
    return "wgmma" if is_wide else f"mma.sync, tiles of {shape.rows} rows"
