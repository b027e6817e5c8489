"""The cuts of products of a few rows hold all rows and fit the device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.cuda.kernels.few_rows_shapes import MOST_ROWS, few_rows_shape

SHARED_BYTES = 227 * 1024  # of a program, on a device of compute capability 9.0
WEIGHTS = [(6144, 4096, False), (4096, 4096, False), (28_672, 4096, True), (4096, 14_336, False), (128_256, 4096, False)]


@given(
    n_rows=st.integers(2, MOST_ROWS),
    n_out=st.integers(1, 200_000),
    width=st.integers(1, 4096).map(lambda eighths: 8 * eighths),
    is_gated=st.booleans(),
)
def test_a_cut_holds_all_rows_and_fits_the_device(n_rows: int, n_out: int, width: int, is_gated: bool) -> None:
    shape = few_rows_shape(n_rows, n_out, width, is_gated=is_gated)
    if shape is None:
        return
    assert n_rows <= shape.rows <= MOST_ROWS
    assert all(size & (size - 1) == 0 for size in (shape.rows, shape.outs, shape.k_block)), "Triton wants powers of two"
    assert shape.outs >= 64 or not shape.is_swapped, "one side of an instruction of the tensor cores has 64"
    assert shape.rows >= 64 or shape.is_swapped
    blocks = shape.rows + shape.outs * (2 if is_gated else 1)
    assert blocks * shape.k_block * 2 * shape.stages < SHARED_BYTES


@pytest.mark.parametrize("n_rows", [0, 1, MOST_ROWS + 1, 5000])
def test_other_numbers_of_rows_are_left_to_others(n_rows: int) -> None:
    assert few_rows_shape(n_rows, 4096, 4096, is_gated=False) is None


def test_rows_that_the_copy_engine_cannot_address_are_left_to_others() -> None:
    assert few_rows_shape(8, 4096, 4097, is_gated=False) is None


def test_all_products_of_a_batch_of_eight_are_ours() -> None:
    assert all(few_rows_shape(8, n_out, width, is_gated=is_gated) for n_out, width, is_gated in WEIGHTS)


def test_weights_are_asked_for_early_where_that_is_faster() -> None:
    def lines(n_rows: int, width: int) -> int:
        shape = few_rows_shape(n_rows, 2048, width, is_gated=False)
        return shape.prefetch if shape else -1

    assert [lines(n_rows, 576) for n_rows in (2, 32, 64)] == [8, 8, 8]
    assert [lines(n_rows, 4096) for n_rows in (2, 32, 64)] == [8, 8, 0]
