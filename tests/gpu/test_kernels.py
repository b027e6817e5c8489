"""The small kernels on a CUDA device, or in Triton's interpreter where TRITON_INTERPRET=1 and Triton is there."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.support.workers.device_choice import DTYPES, kernel_device
from tests.support.workers.kernels.fp8_checks import FP8_CHECKS
from tests.support.workers.kernels.kernel_checks import KERNEL_CHECKS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", KERNEL_CHECKS)
def test_kernel_gives_what_torch_gives(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    KERNEL_CHECKS[name](kernel_device(), dtype)


@pytest.mark.parametrize("name", FP8_CHECKS)
def test_eight_bit_weights_give_what_they_stand_for(name: str) -> None:
    torch.manual_seed(7)
    FP8_CHECKS[name](kernel_device())
