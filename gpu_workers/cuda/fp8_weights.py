"""Weights as 8-bit floating-point numbers (e4m3): how a weight gets into one stretch of bytes, and back out of it.

Each output has one scale, float32: the greatest magnitude of its row / 448. The bytes of a weight [out, in]:

    numbers [out, in], e4m3 | scales [out], float32 | out and in, int64
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_workers.layers.quantized.stored_weight import StoredWeight

FP8 = torch.float8_e4m3fn
GREATEST = 448.0  # of an e4m3 number
LEAST_MAGNITUDE = 1e-12  # of a row, for its scale
SIDE = 16  # that tensor cores and the copy engine want both sides to be a multiple of
_SCALE_BYTES, _SHAPE_BYTES = 4, 16
_SLAB_ROWS = 4096  # that are packed at once: they bound the memory that packing takes


@dataclass(frozen=True)
class Fp8Weight:
    """numbers [out, in] e4m3 and scales [out] float32: views of the packed bytes."""

    numbers: torch.Tensor
    scales: torch.Tensor


def fits_fp8(n_out: int, n_in: int) -> bool:
    """Can a weight of this shape be packed?"""
    return n_out % SIDE == 0 and n_in % SIDE == 0


def packed_size(n_out: int, n_in: int) -> int:
    """Bytes of a packed weight [n_out, n_in]."""
    return n_out * n_in + n_out * _SCALE_BYTES + _SHAPE_BYTES


def pack(weight: torch.Tensor) -> torch.Tensor:
    """weight [out, in] of a float dtype, of a shape that `fits_fp8` -> its packed form, uint8 [packed_size(out, in)] on its
    device. A weight on the device "meta", as weights are counted, gives a tensor of this size there."""
    n_out, n_in = weight.shape
    packed = torch.empty(packed_size(n_out, n_in), dtype=torch.uint8, device=weight.device)
    if weight.is_meta:
        return packed
    packed[-_SHAPE_BYTES:].view(torch.int64).copy_(torch.tensor((n_out, n_in)))
    target = _views(packed, n_out, n_in)
    for first in range(0, n_out, _SLAB_ROWS):
        slab = slice(first, first + _SLAB_ROWS)
        numbers, scales = quantise_rows(weight[slab])
        target.numbers[slab], target.scales[slab] = numbers, scales[:, 0]
    return packed


def pack_stored(stored: StoredWeight) -> torch.Tensor | None:
    """8-bit floats of a checkpoint with one scale for each row, or for all of them -> their packed form with the same numbers;
    None for any other weight, and for a shape that does not fit. Devices as for `pack`."""
    if not stored.is_fp8 or stored.groups is not None or not fits_fp8(*stored.numbers.shape):
        return None
    n_out, n_in = stored.numbers.shape
    packed = torch.empty(packed_size(n_out, n_in), dtype=torch.uint8, device=stored.numbers.device)
    if packed.is_meta:
        return packed
    packed[-_SHAPE_BYTES:].view(torch.int64).copy_(torch.tensor((n_out, n_in)))
    target = _views(packed, n_out, n_in)
    target.numbers.copy_(stored.numbers)
    target.scales.copy_(stored.scales[:, 0])
    return packed


def unpack(packed: torch.Tensor) -> Fp8Weight:
    """The parts of a packed weight. On a GPU this waits until its bytes are there."""
    n_out, n_in = packed[-_SHAPE_BYTES:].view(torch.int64).tolist()
    return _views(packed, n_out, n_in)


def quantise_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x [T, n] of a float dtype -> (numbers [T, n] e4m3, scales [T, 1] float32); the reference of `kernels.fp8_rows`."""
    wide = x.float()
    scales = wide.abs().amax(1, keepdim=True).clamp_(min=LEAST_MAGNITUDE) / GREATEST
    return (wide / scales).to(FP8), scales


def _views(packed: torch.Tensor, n_out: int, n_in: int) -> Fp8Weight:
    n_numbers = n_out * n_in
    scales = packed[n_numbers : n_numbers + n_out * _SCALE_BYTES].view(torch.float32)
    return Fp8Weight(packed[:n_numbers].view(FP8).view(n_out, n_in), scales)
