"""Paged attention on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET=1 and Triton is there."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.support.workers.device_choice import DTYPES, kernel_device
from tests.support.workers.kernels.attention_checks import ATTENTION_CHECKS, SMALL_PAGE_CHECKS
from tests.support.workers.kernels.chunk_checks import check_short_chunk
from tests.support.workers.kernels.widened_checks import WIDENED_CHECKS

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


@pytest.mark.parametrize(
    ("heads", "dtype"), [("llama-8b", DTYPES[1]), ("smollm2", DTYPES[1]), ("smollm2", torch.float32)], ids=str
)
def test_a_short_chunk_after_many_keys(heads: str, dtype: torch.dtype) -> None:
    torch.manual_seed(11)
    check_short_chunk(kernel_device(), dtype, heads)
