"""Where kernel tests run: on the CUDA device, else on the CPU in Triton's interpreter, else nowhere."""

from __future__ import annotations

import os

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# The interpreter multiplies bfloat16 matrices wrongly (their bits as integers), so half stands in for it there.
DTYPES = (torch.float32, torch.float16) if INTERPRETED else (torch.float32, torch.bfloat16, torch.float16)


def kernel_device() -> torch.device:
    """The device, or the end of the test."""
    if torch.cuda.is_available() and not INTERPRETED:
        return torch.device("cuda")
    if not INTERPRETED:
        pytest.skip("needs a CUDA device or TRITON_INTERPRET=1")
    return torch.device("cpu")
