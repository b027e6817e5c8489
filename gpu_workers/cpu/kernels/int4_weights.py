"""Weights as 4-bit integers: the layout that `int4_matrix` reads, and how a weight gets into it.

The numbers of one output and one group of inputs have one step and one least number, both float16. A weight is an integer of
0 to 15 times the step, plus the least number. So are the blocks of GGUF's type Q4_1, which keep their values here. Outputs are
cut into blocks of 64, and a block lies in memory as it is read:

    header     n_out, n_in and BITS as int64, filled up to 64 bytes
    blocks     [n_out / 64, n_in / GROUP]: 64 steps, 64 least numbers, then [GROUP / 8, 64, 4] bytes: byte i of an output has
               input i of eight in its low half, and input i + 4 in its high half

Missing outputs and inputs are zeros.
"""

from __future__ import annotations

import torch
from torch.nn.functional import pad as fill_up

from gpu_workers.cpu.kernels.int8_weights import BLOCK, GROUP, HEADER_BYTES, TOGETHER, count_groups, read_shape, write_header

BITS = 4
GREATEST = 15
STEPS_BYTES = 2 * BLOCK
NUMBERS_BYTES = 2 * STEPS_BYTES  # of steps and least numbers: integers follow them
GROUP_BYTES = NUMBERS_BYTES + BLOCK * GROUP // 2
_SLAB_BLOCKS = 64  # that are packed at once: they bound the memory that packing takes


def packed_size(n_out: int, n_in: int) -> int:
    """Bytes of a packed weight [n_out, n_in]."""
    return HEADER_BYTES + -(-n_out // BLOCK) * count_groups(n_in) * GROUP_BYTES


def pack(weight: torch.Tensor) -> torch.Tensor:
    """weight [out, in] of a float dtype on the CPU -> its packed form, uint8 [packed_size(out, in)]. A weight on the device
    "meta", as weights are counted, gives a tensor of this size there. Numbers beyond float16 become infinite."""
    n_out, n_in = weight.shape
    packed = torch.zeros(packed_size(n_out, n_in), dtype=torch.uint8, device=weight.device)
    if weight.is_meta:
        return packed
    write_header(packed, n_out, n_in, BITS)
    blocks = packed[HEADER_BYTES:].view(-1, count_groups(n_in), GROUP_BYTES)
    for first in range(0, len(blocks), _SLAB_BLOCKS):
        slab = blocks[first : first + _SLAB_BLOCKS]
        rows = weight[first * BLOCK : (first + len(slab)) * BLOCK].float()
        whole = fill_up(rows, (0, slab.shape[1] * GROUP - n_in, 0, len(slab) * BLOCK - len(rows)))
        _pack_blocks(whole.view(len(slab), BLOCK, -1, GROUP), slab)
    return packed


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The weight that a packed one stands for: float32 [out, in]."""
    n_out, n_in = read_shape(packed)
    blocks = packed[HEADER_BYTES:].view(-1, count_groups(n_in), GROUP_BYTES)
    steps, least = blocks[..., :NUMBERS_BYTES].contiguous().view(torch.float16).float().split(BLOCK, -1)
    pairs = blocks[..., NUMBERS_BYTES:].reshape(len(blocks), -1, GROUP // 8, BLOCK, TOGETHER)
    whole = torch.stack((pairs & GREATEST, pairs >> BITS), 3).float()
    numbers = whole * steps[:, :, None, None, :, None] + least[:, :, None, None, :, None]
    return numbers.permute(0, 4, 1, 2, 3, 5).reshape(len(blocks) * BLOCK, -1)[:n_out, :n_in].contiguous()


def _pack_blocks(numbers: torch.Tensor, target: torch.Tensor) -> None:
    """numbers [blocks, BLOCK, groups, GROUP] float32, overwritten -> target [blocks, groups, GROUP_BYTES] uint8."""
    smallest, greatest = numbers.amin(-1), numbers.amax(-1)
    steps, least = ((greatest - smallest) / GREATEST).half(), smallest.half()
    wide = steps.float()[..., None]
    inverse = torch.where(wide > 0, 1 / wide, 0.0)
    whole = numbers.sub_(least.float()[..., None]).mul_(inverse).round_().clamp_(0, GREATEST).to(torch.uint8)
    n_blocks, n_groups = target.shape[:2]
    quads = whole.view(n_blocks, BLOCK, n_groups, GROUP // 8, 2, TOGETHER).permute(4, 0, 2, 3, 1, 5)
    both = torch.stack((steps, least), -1).permute(0, 2, 3, 1).contiguous()
    target[..., :NUMBERS_BYTES] = both.view(torch.uint8).reshape(n_blocks, n_groups, -1)
    target[..., NUMBERS_BYTES:] = (quads[0] | (quads[1] << BITS)).reshape(n_blocks, n_groups, -1)
