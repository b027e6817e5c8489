"""Paged attention on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET=1 and Triton is there."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from gpu_workers.cuda.flash_attention import load_flash
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.page_format import FP8
from tests.support.workers.device_choice import DTYPES, kernel_device
from tests.support.workers.kernels.attention_checks import ATTENTION_CHECKS, SMALL_PAGE_CHECKS
from tests.support.workers.kernels.chunk_checks import check_short_chunk
from tests.support.workers.kernels.plain_flash import plain_flash
from tests.support.workers.kernels.widened_checks import WIDENED_CHECKS, check_flash

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ATTENTION_CHECKS)
def test_attention_gives_what_its_definition_gives(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    ATTENTION_CHECKS[name](kernel_device(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SMALL_PAGE_CHECKS)
def test_pages_of_8_bits_give_what_they_stand_for(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    SMALL_PAGE_CHECKS[name](kernel_device(), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WIDENED_CHECKS)
def test_widened_keys_give_what_their_pages_stand_for(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    WIDENED_CHECKS[name](kernel_device(), dtype)


@pytest.mark.parametrize("page_dtype", [None, FP8, torch.int8], ids=str)
def test_flash_attention_gives_what_ours_gives(page_dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    device = kernel_device()
    torch.manual_seed(11)
    if device.type == "cpu":  # the library needs a GPU: here a few lines of torch stand in for it
        monkeypatch.setattr("gpu_workers.cuda.triton_attention.flash_prefill", plain_flash)
    elif not load_flash(torch.bfloat16, 128, device):
        pytest.skip("needs fa3-fwd and an H100 or H200")
    check_flash(device, DTYPES[1], page_dtype)


@pytest.mark.parametrize(
    ("heads", "dtype"), [("llama-8b", DTYPES[1]), ("smollm2", DTYPES[1]), ("smollm2", torch.float32)], ids=str
)
def test_a_short_chunk_after_many_keys(heads: str, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    check_short_chunk(kernel_device(), dtype, heads)


@pytest.mark.parametrize(
    ("rows", "splits", "stages"), [(17, 4, 3), (48, 4, 3), (49, 2, 3), (96, 2, 3), (97, 1, 5), (256, 1, 5)]
)
def test_pages_of_8_bit_floats_have_shapes_of_their_own(rows: int, splits: int, stages: int) -> None:
    """The others are cut as pages of the model's dtype: those were not measured, or are not faster."""
    own = TritonAttention(32, 8, 128, torch.bfloat16, page_dtype=FP8)._decode_shape(rows)
    assert (own.splits, own.keys, own.stages) == (splits, 128, stages)
    plain = TritonAttention(32, 8, 128, torch.bfloat16)._decode_shape(rows)
    assert TritonAttention(32, 8, 128, torch.bfloat16, page_dtype=torch.int8)._decode_shape(rows) == plain != own
    few = TritonAttention(32, 8, 128, torch.bfloat16, page_dtype=FP8)._decode_shape(16)
    assert few == TritonAttention(32, 8, 128, torch.bfloat16)._decode_shape(16)
