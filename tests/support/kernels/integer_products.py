"""Inputs of products with weights of integers, and what rounding makes of them."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from gpu_workers.cpu.kernels import int8_weights

DTYPES = [torch.float32, torch.bfloat16]
ROWS, INPUTS, OUTPUTS = st.integers(1, 20), st.integers(1, 150), st.integers(1, 140)


def numbers(*shape: int, seed: int) -> torch.Tensor:
    """Random ones of very different magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * torch.randn(shape, generator=generator).exp()


def rounded(x: torch.Tensor) -> torch.Tensor:
    """The rows x [T, in] after each group of them has become integers, float64."""
    padded = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % int8_weights.GROUP)).view(len(x), -1, int8_weights.GROUP)
    scales = padded.abs().amax(-1, keepdim=True) * torch.tensor(1 / int8_weights.GREATEST)
    inverse = torch.where(scales > int8_weights.LEAST_SCALE, 1 / scales, 0.0)
    whole = (padded * inverse).round().clamp(-int8_weights.GREATEST, int8_weights.GREATEST)
    return (whole.double() * scales.double()).flatten(1)[:, : x.shape[1]]
