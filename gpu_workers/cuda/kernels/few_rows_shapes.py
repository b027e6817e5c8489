"""How products of a few rows are cut: rules from `ops.gpu.few_rows_sweep` on an H200 (docs/performance_gpus.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_ROWS = 128

_HEAD_OUTPUTS = 40_000
_OUTPUTS, _MANY_OUTPUTS = 4096, 6144  # between them 64 columns of a program leave many of the 132 multiprocessors idle
_NARROW_OUTPUTS, _NARROW_INPUTS = 1024, 1024
_NEARLY_FULL_ROWS, _SMALL_OUTPUTS = 48, 2048  # 40 rows: 2048 x 2048 5.7 us (cuBLAS 6.6), but 3072 x 2048 8.2 us (7.1)
_EARLY_LINES = 8  # wide products of 33 rows and more are up to 0.5 % slower with them
_WIDE_INPUTS, _DEEP_INPUTS, _DEEP_OUTPUTS = 2048, 4096, 2560


@dataclass(frozen=True)
class FewRowsShape:
    """How one product is cut. A tile has all rows."""

    rows: int  # of a tile; those that are missing are zeros
    outs: int  # columns of a tile
    k_block: int  # inputs at a time
    stages: int  # blocks of inputs that are on their way at a time
    is_swapped: bool  # the tensor cores compute weight @ x.T, which fits fewer than 64 rows
    prefetch: int = 0  # lines of 128 bytes of each weight row that are asked for while the kernel before still runs


def few_rows_shape(n_rows: int, n_out: int, width: int, *, is_gated: bool) -> FewRowsShape | None:
    """The cut for n_rows rows and a weight [n_out, width]; None where cuBLAS is as fast. is_gated: see `few_rows_product`."""
    if not 2 <= n_rows <= MOST_ROWS or width % 8:
        return None
    if n_rows > 64:
        return _up_to_128_rows(n_out, width, is_gated)
    if n_rows > 32:
        shape = _up_to_64_rows(n_rows, n_out, width, is_gated)
        return shape and replace(shape, prefetch=_EARLY_LINES if width < _WIDE_INPUTS else 0)
    shape = _up_to_32_rows(n_out, width, is_gated)
    return shape and replace(shape, rows=16 if n_rows <= 16 else 32, prefetch=_EARLY_LINES)


def fp8_rows_shape(n_rows: int, n_out: int, width: int, *, is_gated: bool) -> FewRowsShape | None:
    """As `few_rows_shape`, for 8-bit numbers: the cut of a product with as many bytes in a row."""
    shape = few_rows_shape(n_rows, n_out, width // 2, is_gated=is_gated)
    return shape and replace(shape, k_block=2 * shape.k_block)


def _up_to_32_rows(n_out: int, width: int, is_gated: bool) -> FewRowsShape | None:
    is_wide = width >= _WIDE_INPUTS
    if is_gated:
        return FewRowsShape(32, 64, 128, 4, True)
    if n_out >= _HEAD_OUTPUTS:
        return FewRowsShape(32, 128, 128, 3, True) if is_wide else FewRowsShape(32, 128, 64, 4, True)
    if n_out >= _MANY_OUTPUTS:
        return FewRowsShape(32, 64, 256, 3, True)
    if n_out > _OUTPUTS or (width > _DEEP_INPUTS and n_out < _DEEP_OUTPUTS):
        return None
    return FewRowsShape(32, 64, 128, 8, True) if is_wide else FewRowsShape(32, 64, 256, 4, True)


def _up_to_64_rows(n_rows: int, n_out: int, width: int, is_gated: bool) -> FewRowsShape | None:
    is_wide = width >= _WIDE_INPUTS
    if is_gated:
        return FewRowsShape(64, 64, 128, 4, True) if is_wide else FewRowsShape(64, 32, 128, 4, False)
    if n_out >= _HEAD_OUTPUTS:
        return FewRowsShape(64, 128, 128, 4, False) if is_wide else FewRowsShape(64, 64, 64, 4, False)
    if n_out > _OUTPUTS or (width > _DEEP_INPUTS and (n_out <= _DEEP_OUTPUTS or n_rows < 64)):
        return None  # blocks of 256 inputs with missing rows are slow, the more of them the slower
    if is_wide and n_rows < _NEARLY_FULL_ROWS and n_out > _SMALL_OUTPUTS:
        return None
    return FewRowsShape(64, 16 if n_out <= _NARROW_OUTPUTS else 32, 256, 4, False)


def _up_to_128_rows(n_out: int, width: int, is_gated: bool) -> FewRowsShape | None:
    is_narrow = width <= _NARROW_INPUTS and n_out <= (_OUTPUTS if is_gated else _NARROW_OUTPUTS)
    return FewRowsShape(128, 16, 128, 4, False) if is_narrow else None
