"""The cuts of deterministic products: what decides bits follows from the weight alone, whatever the number of rows."""

from __future__ import annotations

import pytest
import torch

from gpu_workers.cuda.kernels import fixed_shapes
from gpu_workers.cuda.kernels.fixed_shapes import MeasuredShapes, ProductShape, count_segments, product_shape

WEIGHTS = ((960, 576), (576, 576), (3072, 576), (576, 1536), (49_152, 576), (6144, 4096), (4096, 14_336), (1000, 600))
ROW_COUNTS = (1, 2, 8, 9, 64, 65, 128, 129, 256, 300, 1000, 8192)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_segments_do_not_follow_the_number_of_rows(weight: tuple[int, int], dtype: torch.dtype) -> None:
    shapes = [product_shape(n, *weight, dtype) for n in ROW_COUNTS]
    assert len({shape.segments for shape in shapes}) == 1


def test_few_outputs_of_many_rows_are_cut_into_enough_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_shapes, "MEASURED", {})  # by the rules
    for n_out, width in ((960, 576), (576, 576), (3072, 576), (576, 1536)):
        shape = product_shape(256, n_out, width, torch.bfloat16)
        assert (256 // shape.rows) * -(-n_out // shape.outs) >= 99


def test_a_measured_weight_takes_the_cut_of_the_next_larger_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = ProductShape(64, 16, 64, 4, 6, 4), ProductShape(128, 64, 64, 8, 4, 4)
    monkeypatch.setitem(fixed_shapes.MEASURED, (576, 1536), MeasuredShapes(4, {256: large, 8: small}))
    shapes = {n: product_shape(n, 576, 1536, torch.bfloat16) for n in (1, 8, 9, 256, 257)}
    assert [shapes[n] for n in (1, 8, 9, 256)] == [small, small, large, large]
    assert shapes[257].segments == count_segments(576, 1536) == 4  # by the rules, but with the same bits
