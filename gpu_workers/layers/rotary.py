"""Angles of rotary positions (RoFormer, Su et al., 2021), stretched as Llama 3.1 does where the config says so."""

from __future__ import annotations

import math

import torch

from gpu_workers.model_store.rope import Rope


def rotary_table(rope: Rope, head_dim: int, max_position: int, device: torch.device) -> torch.Tensor:
    """The `cos_sin_table` of a rope: [max_position, head_dim] float32 on `device`."""
    if device.type == "meta":  # where a model is only counted; arithmetic there would import sympy, which takes seconds
        return torch.empty(max_position, head_dim, device=device)
    return cos_sin_table(inverse_frequencies(rope, head_dim).to(device), max_position)


def cos_sin_table(inverse_frequencies: torch.Tensor, max_position: int) -> torch.Tensor:
    """inverse_frequencies [head_dim / 2] float32 -> [max_position, head_dim] float32 on its device: the cosines of a position's
    angles, then their sines."""
    positions = torch.arange(max_position, dtype=torch.float32, device=inverse_frequencies.device)
    angles = positions[:, None] * inverse_frequencies
    return torch.cat((angles.cos(), angles.sin()), -1)


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """Angle per position of each pair of a head: [head_dim / 2] float32 on the CPU."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / rope.theta**exponents
    if rope.kind == "linear":
        return frequencies / rope.factor
    return _scale_by_wavelength(frequencies, rope) if rope.kind == "llama3" else frequencies


def _scale_by_wavelength(frequencies: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Llama 3.1: long waves are stretched by `factor`, short ones are kept, those between are blended."""
    turns = rope.original_max_position * frequencies / (2 * math.pi)  # full turns of each wave within the original context
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / rope.factor)
