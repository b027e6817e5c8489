"""Weights whose numbers are integers times a step, stored as these integers without any loss: the layout that `exact_matrix`
reads.

Files of GGUF's types Q4_1 and Q8_0 have such weights: 32 inputs of an output have one step, float16, and those of 4 bits a
least number too. Outputs are cut into blocks of 64, and a block lies in memory as it is read:

    header     n_out, n_in and the bits of an integer as int64, filled up to 64 bytes
    4 bits     as in `int4_weights`: an integer of 0 to 15 times its step, plus the least number, rounded once to float32
    8 bits     [n_out / 64, n_in / GROUP]: 64 steps, float16, then [GROUP / 4, 64, 4] integers of -127 to 127, plus 128

Missing outputs are zeros.
"""

from __future__ import annotations

from typing import Literal

import torch

from gpu_workers.cpu.kernels import int4_weights
from gpu_workers.cpu.kernels.int8_weights import BLOCK, GROUP, HEADER_BYTES, TOGETHER, read_bits, read_shape, write_header

Bits = Literal[4, 8]
BITS: tuple[Bits, ...] = (4, 8)
ZERO_OF_8_BITS = 128  # is stored for 0
NUMBERS_BYTES = {4: int4_weights.NUMBERS_BYTES, 8: 2 * BLOCK}  # of what lies before the integers of a group, by their bits


def group_bytes(bits: Bits) -> int:
    """Bytes of one group of a block."""
    return NUMBERS_BYTES[bits] + BLOCK * GROUP * bits // 8


def empty(n_out: int, n_in: int, bits: Bits) -> torch.Tensor:
    """Room for a packed weight [n_out, n_in], n_in a multiple of GROUP: uint8. Behind the header, what stands for missing
    outputs is 0; the rest is not initialised."""
    block_bytes = n_in // GROUP * group_bytes(bits)
    packed = torch.empty(HEADER_BYTES + -(-n_out // BLOCK) * block_bytes, dtype=torch.uint8)
    packed[:HEADER_BYTES].zero_()
    if n_out % BLOCK:
        packed[-block_bytes:].zero_()
    write_header(packed, n_out, n_in, bits)
    return packed


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The weight that a packed one stands for: float32 [out, in]."""
    if read_bits(packed) == int4_weights.BITS:
        return int4_weights.unpack(packed)
    n_out, n_in = read_shape(packed)
    blocks = packed[HEADER_BYTES:].view(-1, n_in // GROUP, group_bytes(8))
    steps = blocks[..., : NUMBERS_BYTES[8]].contiguous().view(torch.float16).float()
    stored = blocks[..., NUMBERS_BYTES[8] :].reshape(len(blocks), -1, GROUP // TOGETHER, BLOCK, TOGETHER)
    numbers = (stored.float() - ZERO_OF_8_BITS) * steps[:, :, None, :, None]
    return numbers.permute(0, 3, 1, 2, 4).reshape(len(blocks) * BLOCK, n_in)[:n_out].contiguous()
