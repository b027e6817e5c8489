"""How many bytes a key and a value take in pages that do not hold the model's own numbers. Plans need it, so no torch here."""

from __future__ import annotations

SCALE_BYTES = 2


def scaled_vector_bytes(head_dim: int) -> tuple[int, int]:
    """Of a key and of a value as 8-bit numbers, with the scale of each."""
    return head_dim + SCALE_BYTES, head_dim + SCALE_BYTES
