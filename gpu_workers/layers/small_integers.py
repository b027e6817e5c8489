"""Vectors as small integers: each half of a vector after a Hadamard transform, with one scale of 8 bits.

The transform spreads the few great numbers of a key over its whole half, so that a uniform grid fits it (as in QuaRot, Ashkboos
et al., 2024). Halves stay apart, because the numbers of a half belong to one another in RoPE and differ in size from the other
half's less than within it. All arithmetic is elementwise, in float32 and in a fixed order, so a vector gets the same bytes in
any batch.
"""

from __future__ import annotations

import math

import torch

FIRST_SCALE = 107 << 3  # float32's exponent and three digits of the scale whose code is 0: 2 ** -20
DROPPED_BITS = 20  # of a float32's 23: scales have three
LAST_SCALE = 255
NEIGHBOURS = (-1, 1, 2)  # scale codes that are tried, from the usual one
GREATER_FACTOR = 4.0  # by which errors with a greater scale count more


def halves_of(vectors: torch.Tensor) -> torch.Tensor:
    """vectors [..., n] of any float dtype, n / 2 a power of two -> float32 [..., 2, n / 2], each half transformed."""
    return _hadamard(vectors.float().unflatten(-1, (2, vectors.shape[-1] // 2)))


def vectors_of(halves: torch.Tensor) -> torch.Tensor:
    """The inverse of `halves_of`: float32 [..., 2, n / 2] -> [..., n]."""
    return _hadamard(halves).flatten(-2)


def _hadamard(x: torch.Tensor) -> torch.Tensor:
    """x [..., n] float32 times the orthonormal Hadamard matrix: sums and differences of numbers 1, 2, 4, ... apart."""
    n, apart = x.shape[-1], 1
    while apart < n:
        first, second = x.unflatten(-1, (n // (2 * apart), 2, apart)).unbind(-2)
        x = torch.stack((first + second, first - second), -2).flatten(-3)
        apart *= 2
    return x * (1 / math.sqrt(n))


def quantise(halves: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """halves [..., n] float32 -> codes, uint8 [..., n], below `levels`, and scale codes, uint8 [...].

    A code stands for the middle of its cell; the greatest magnitude is the outer end of the last cell, up to the rounding of
    the scale. A vector of zeros becomes numbers below 2 ** -20."""
    scale_codes = _scale_codes(halves.abs().amax(-1) * (2 / levels))
    return _cells(halves, scale_codes, levels), scale_codes


def quantise_again(halves: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As `quantise`, but of its scale and its neighbours the one with the least squares of errors is taken; a greater scale
    only where it leaves less than a quarter of them.

    Numbers that were restored once have their scale of then among the greater ones: their greatest magnitude is now the middle
    of the last cell, which gives a smaller scale. So they get their codes again, and nothing is lost anew each time."""
    first = _scale_codes(halves.abs().amax(-1) * (2 / levels))
    best, least = first, _squares_of_errors(halves, first, levels)
    for step in NEIGHBOURS:
        scale_codes = (first.to(torch.int32) + step).clamp(0, LAST_SCALE).to(torch.uint8)
        errors = _squares_of_errors(halves, scale_codes, levels) * (GREATER_FACTOR if step > 0 else 1.0)
        best, least = torch.where(errors < least, scale_codes, best), torch.minimum(errors, least)
    return _cells(halves, best, levels), best


def _squares_of_errors(halves: torch.Tensor, scale_codes: torch.Tensor, levels: int) -> torch.Tensor:
    return restored(_cells(halves, scale_codes, levels), scale_codes, levels).sub_(halves).square_().sum(-1)


def _cells(halves: torch.Tensor, scale_codes: torch.Tensor, levels: int) -> torch.Tensor:
    cells = halves * scales_of_codes(scale_codes).reciprocal()[..., None] + levels / 2
    return cells.clamp_(0, levels - 1).to(torch.uint8)  # which rounds down; torch.floor asks for threads


def restored(codes: torch.Tensor, scale_codes: torch.Tensor, levels: int) -> torch.Tensor:
    """The numbers, float32, that `quantise` has stored. Shapes as there."""
    return (codes.float() - (levels - 1) / 2) * scales_of_codes(scale_codes)[..., None]


def _scale_codes(scales: torch.Tensor) -> torch.Tensor:
    """Scales, float32, at least 0 -> the nearest codes (ties to even). Greater ones than the last code's become that."""
    bits = scales.view(torch.int32)
    rounded = (bits + (1 << (DROPPED_BITS - 1)) - 1 + ((bits >> DROPPED_BITS) & 1)) >> DROPPED_BITS
    return (rounded - FIRST_SCALE).clamp(0, LAST_SCALE).to(torch.uint8)


def scales_of_codes(codes: torch.Tensor) -> torch.Tensor:
    """What scale codes, uint8, stand for: float32 from 2 ** -20 to 3,840, five bits of exponent and three digits."""
    return ((codes.to(torch.int32) + FIRST_SCALE) << DROPPED_BITS).view(torch.float32)


def pack_bits(bits: torch.Tensor) -> torch.Tensor:
    """bits [..., n], 0 or 1, uint8 -> bytes [..., n / 8]; the first number of eight is the lowest bit."""
    places = torch.arange(8, device=bits.device, dtype=torch.uint8)
    return (bits.unflatten(-1, (-1, 8)) << places).sum(-1, dtype=torch.uint8)


def unpack_bits(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of `pack_bits`."""
    places = torch.arange(8, device=packed.device, dtype=torch.uint8)
    return ((packed[..., None] >> places) & 1).flatten(-2)
