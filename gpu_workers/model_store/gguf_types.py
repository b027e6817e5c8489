"""How many bytes a tensor of a GGUF file has. The numbers are those of the format; `gguf.constants` has them too, but importing
it takes a quarter of a second."""

from __future__ import annotations

from collections.abc import Mapping

# by the type's number: values in a block, bytes of a block
BLOCKS: Mapping[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip


def tensor_bytes(kind: int, n_values: int) -> int:
    """Bytes of a tensor with so many values of type `kind`; 0 for a type that is not in BLOCKS: the conversion refuses it."""
    n_of_block, block_bytes = BLOCKS.get(kind, (1, 0))
    return n_values // n_of_block * block_bytes
