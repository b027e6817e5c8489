"""The types of a GGUF file and of its tensors, and how many bytes a tensor has. The numbers are those of the format;
`gguf.constants` has them too, but importing it takes a quarter of a second."""

from __future__ import annotations

from collections.abc import Mapping

# `general.file_type` of the format: what most of the tensors are
FILE_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip
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
