"""Penalties, bans and filters in the sampling kernels, on a CUDA device or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tests.support.workers.device_choice import DTYPES, kernel_device
from tests.support.workers.kernels.sampling_checks import SAMPLING_CHECKS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SAMPLING_CHECKS)
def test_kernels_choose_what_the_rule_says(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    SAMPLING_CHECKS[name](kernel_device(), dtype)
