"""Weights as 8-bit integers: the layout that `int8_matrix` reads, and how a weight gets into it.

Inputs are cut into groups. The numbers of one output and one group have one scale, bfloat16: the greatest magnitude / 127. A
weight is an integer of -127 to 127 times its scale; it is stored plus 128, because the instruction that multiplies takes one
operand without a sign. Outputs are cut into blocks of 64, and a block lies in memory as it is read:

    header     n_out, n_in and BITS as int64, filled up to 64 bytes
    blocks     [n_out / 64, n_in / GROUP]: 64 scales, then [GROUP / 4, 64, 4] integers: four inputs of an output together

Missing outputs and inputs are zeros.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad

BITS = 8
GROUP = 32  # inputs
BLOCK = 64  # outputs
TOGETHER = 4  # inputs whose products one instruction adds up
HEADER_BYTES = 64
SCALES_BYTES = 2 * BLOCK
GROUP_BYTES = SCALES_BYTES + BLOCK * GROUP
ZERO = 128  # is stored for 0
GREATEST = 127
LEAST_SCALE = 1e-30  # with a smaller one the reciprocal may be infinite; all integers of such a group are 0
_SLAB_BLOCKS = 64  # that are packed at once: they bound the memory that packing takes


def count_groups(n_in: int) -> int:
    """Groups of so many inputs."""
    return -(-n_in // GROUP)


def packed_size(n_out: int, n_in: int) -> int:
    """Bytes of a packed weight [n_out, n_in]."""
    return HEADER_BYTES + -(-n_out // BLOCK) * count_groups(n_in) * GROUP_BYTES


def pack(weight: torch.Tensor) -> torch.Tensor:
    """weight [out, in] of a float dtype on the CPU -> its packed form, uint8 [packed_size(out, in)]. A weight on the device
    "meta", as weights are counted, gives a tensor of this size there."""
    n_out, n_in = weight.shape
    packed = torch.zeros(packed_size(n_out, n_in), dtype=torch.uint8, device=weight.device)
    if weight.is_meta:
        return packed
    write_header(packed, n_out, n_in, BITS)
    blocks = packed[HEADER_BYTES:].view(-1, count_groups(n_in), GROUP_BYTES)
    for first in range(0, len(blocks), _SLAB_BLOCKS):
        slab = blocks[first : first + _SLAB_BLOCKS]
        rows = weight[first * BLOCK : (first + len(slab)) * BLOCK].float()
        whole = pad(rows, (0, slab.shape[1] * GROUP - n_in, 0, len(slab) * BLOCK - len(rows)))
        _pack_blocks(whole.view(len(slab), BLOCK, -1, GROUP), slab)
    return packed


def write_header(packed: torch.Tensor, n_out: int, n_in: int, bits: int) -> None:
    """The header of a packed weight [n_out, n_in] of integers with so many bits."""
    packed[:24].view(torch.int64).copy_(torch.tensor((n_out, n_in, bits)))


def read_bits(packed: torch.Tensor) -> int:
    """Bits of the integers of a packed weight."""
    return int(packed[16:24].view(torch.int64).item())


def read_shape(packed: torch.Tensor) -> tuple[int, int]:
    """(n_out, n_in) of a packed weight."""
    n_out, n_in = packed[:16].view(torch.int64).tolist()
    return n_out, n_in


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The weight that a packed one stands for: float32 [out, in]."""
    n_out, n_in = read_shape(packed)
    blocks = packed[HEADER_BYTES:].view(-1, count_groups(n_in), GROUP_BYTES)
    scales = blocks[..., :SCALES_BYTES].contiguous().view(torch.bfloat16).float()
    stored = blocks[..., SCALES_BYTES:].reshape(len(blocks), -1, GROUP // TOGETHER, BLOCK, TOGETHER)
    numbers = (stored.float() - ZERO) * scales[:, :, None, :, None]
    return numbers.permute(0, 3, 1, 2, 4).reshape(len(blocks) * BLOCK, -1)[:n_out, :n_in].contiguous()


def _pack_blocks(numbers: torch.Tensor, target: torch.Tensor) -> None:
    """numbers [blocks, BLOCK, groups, GROUP] float32, overwritten -> target [blocks, groups, GROUP_BYTES] uint8."""
    scales = (numbers.abs().amax(-1) / GREATEST).bfloat16()
    wide = scales.float()
    inverse = torch.where(wide > LEAST_SCALE, 1 / wide, 0.0)
    whole = numbers.mul_(inverse[..., None]).round_().clamp_(-GREATEST, GREATEST).add_(ZERO).to(torch.uint8)
    n_blocks, n_groups = target.shape[:2]
    quads = whole.view(n_blocks, BLOCK, n_groups, GROUP // TOGETHER, TOGETHER).permute(0, 2, 3, 1, 4)
    target[..., :SCALES_BYTES] = scales.transpose(1, 2).contiguous().view(torch.uint8)
    target[..., SCALES_BYTES:] = quads.reshape(n_blocks, n_groups, -1)
