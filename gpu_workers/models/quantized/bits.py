"""Unpacks integers of 4 or 8 bits from the 32-bit words of a checkpoint. The lowest bits of a word come first."""

from __future__ import annotations

import torch

_WORD_BITS = 32
_AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # in a word of AWQ, where the numbers of eight neighbouring outputs are


def per_word(bits: int) -> int:
    """Integers in a word."""
    return _WORD_BITS // bits


def unpack_words(words: torch.Tensor, bits: int) -> torch.Tensor:
    """words [n, m] int32 -> uint8 [n, m * per_word(bits)]."""
    if words.is_meta:
        return words.new_empty((words.shape[0], words.shape[1] * per_word(bits)), dtype=torch.uint8)
    whole = words.contiguous().view(torch.uint8)
    return whole if bits == 8 else torch.stack((whole & 15, whole >> 4), -1).flatten(-2)


def unpack_awq(words: torch.Tensor) -> torch.Tensor:
    """words [n, m] int32 of eight outputs each, in the order of AWQ -> uint8 [n, m * 8] in the order of the outputs."""
    numbers = unpack_words(words, 4)
    return numbers.view(len(numbers), -1, len(_AWQ_PLACES))[..., list(_AWQ_PLACES)].flatten(1)


def words_of(part: range, bits: int) -> tuple[range, slice]:
    """The words in which the integers `part` of a row are, and where they are among the integers of these words."""
    n = per_word(bits)
    words = range(part.start // n, -(-part.stop // n))
    first = part.start - words.start * n
    return words, slice(first, first + len(part))
