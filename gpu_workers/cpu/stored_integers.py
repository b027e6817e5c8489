"""Puts the integers of a quantised checkpoint into the layouts of our products, as they are.

A layout has one scale for 32 inputs. Where the checkpoint has one for more of them, it is repeated; that costs a byte for each
16 or 32 numbers and lets the products stay as they are.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad as fill_up

from gpu_workers.cpu.kernels import exact_weights, int4_weights
from gpu_workers.cpu.kernels.int8_weights import BLOCK, GROUP, HEADER_BYTES, TOGETHER, ZERO
from gpu_workers.layers.quantized.stored_weight import StoredWeight

_SLAB_BLOCKS = 64  # that are packed at once: they bound the memory that packing takes


def pack_8_bits(stored: StoredWeight) -> torch.Tensor | None:
    """In the layout of `int8_weights`: the integers as they are, each scale rounded to bfloat16. None where the weight is not
    made of such integers, or 32 inputs have several scales."""
    return _pack(stored, torch.bfloat16, 8, is_exact=False)


def pack_4_bits(stored: StoredWeight) -> torch.Tensor | None:
    """In the layout of `int4_weights`: the integers as they are, scale and zero rounded to a step and a least number in
    float16. None where the weight is not made of such integers, or 32 inputs have several scales."""
    return _pack(stored, torch.float16, 4, is_exact=False)


def pack_exactly(stored: StoredWeight) -> torch.Tensor | None:
    """In the layout of `exact_weights`, of 4 bits where they suffice, else of 8. None where that would round anything, or 32
    inputs have several scales."""
    packed = _pack(stored, torch.float16, 4, is_exact=True)
    return _pack(stored, torch.float16, 8, is_exact=True) if packed is None else packed


def _pack(stored: StoredWeight, dtype: torch.dtype, bits: exact_weights.Bits, *, is_exact: bool) -> torch.Tensor | None:
    """dtype: of the numbers before the integers of a group. is_exact: None where they would be rounded."""
    if stored.numbers.is_meta or stored.is_fp8 or (grouped := stored.by_groups_of(GROUP)) is None:
        return None
    whole, numbers = _four_bits(grouped) if bits == 4 else _eight_bits(grouped)
    if whole is None:
        return None
    small = torch.stack(numbers, -1).to(dtype)  # [out, n_groups, 1 or 2]
    wide = torch.stack(numbers, -1)
    if not small.isfinite().all() or (is_exact and not small.float().equal(wide)):
        return None
    n_out, n_in = whole.shape
    packed = exact_weights.empty(n_out, n_in, bits)
    blocks = packed[HEADER_BYTES:].view(-1, n_in // GROUP, exact_weights.group_bytes(bits))
    for first in range(0, len(blocks), _SLAB_BLOCKS):
        slab, rows = blocks[first : first + _SLAB_BLOCKS], slice(first * BLOCK, (first + _SLAB_BLOCKS) * BLOCK)
        _lay_out(whole[rows], small[rows], slab, bits)
    return packed


def _four_bits(stored: StoredWeight) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Integers of 0 to 15, uint8 [out, in], and step and least number, float32 [out, n_groups] both."""
    if stored.bits != 4 or stored.zeros is None:
        return None, []
    return stored.numbers, [stored.scales, -stored.zeros.float() * stored.scales]


def _eight_bits(stored: StoredWeight) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Integers of -128 to 127 plus 128, uint8 [out, in], and the step, float32 [out, n_groups]."""
    whole = stored.integers()
    return (None if whole is None else (whole + ZERO).to(torch.uint8)), [stored.scales]


def _lay_out(whole: torch.Tensor, small: torch.Tensor, target: torch.Tensor, bits: int) -> None:
    """whole [rows, in] uint8, small [rows, n_groups, n] -> target [blocks, n_groups, bytes of a group]. Missing rows are
    zeros."""
    n_blocks, n_groups = target.shape[:2]
    n_missing = n_blocks * BLOCK - len(whole)
    numbers = fill_up(small, (0, 0, 0, 0, 0, n_missing)).view(n_blocks, BLOCK, n_groups, -1).permute(0, 2, 3, 1)
    n_bytes = exact_weights.NUMBERS_BYTES[bits]
    target[..., :n_bytes] = numbers.contiguous().view(torch.uint8).reshape(n_blocks, n_groups, -1)
    filler = 0 if bits == int4_weights.BITS else ZERO
    filled = fill_up(whole, (0, 0, 0, n_missing), value=filler)
    if bits == int4_weights.BITS:
        halves = filled.view(n_blocks, BLOCK, n_groups, GROUP // 8, 2, TOGETHER).permute(4, 0, 2, 3, 1, 5)
        quads = halves[0] | (halves[1] << int4_weights.BITS)
    else:
        quads = filled.view(n_blocks, BLOCK, n_groups, GROUP // TOGETHER, TOGETHER).permute(0, 2, 3, 1, 4)
    target[..., n_bytes:] = quads.reshape(n_blocks, n_groups, -1)
