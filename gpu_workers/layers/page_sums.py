"""Checksums of pages, 64 bits, as every device computes them. This is the reference; GPUs have a kernel.

A page is a row of 64-bit words. Each word is combined with its index and mixed as in SplitMix64 (Steele et al., 2014), by steps
that lose nothing, and the results are summed; all of it modulo 2^64. So a word with any other value gives another sum, and so
does another order of words. A sum can be taken in any order, so a kernel may cut a page into parts.
"""

from __future__ import annotations

import numpy as np

# Odd numbers below 2^63, so that they are positive for every language: the usual ones without their first bit.
INDEX_FACTOR = 0x1E3779B97F4A7C15
FACTORS = (0x3F58476D1CE4E5B9, 0x14D049BB133111EB)
SHIFTS = (30, 27, 31)  # before each factor, and after the last one
WORD_BYTES = 8
_MODULUS = 1 << 64
_BLOCK = 8192  # words at once, so that what lies between the steps stays in a core's cache


def page_sums(pages: np.ndarray) -> np.ndarray:
    """The checksums of pages [n, bytes of a page] uint8 whose rows are contiguous: uint64 [n]. Raises: ValueError for pages
    that are not whole words."""
    if pages.shape[1] % WORD_BYTES:
        raise ValueError(f"bytes of a page: expected a multiple of {WORD_BYTES}, got {pages.shape[1]}")
    keys = np.arange(1, _BLOCK + 1, dtype=np.uint64) * np.uint64(INDEX_FACTOR)
    return np.array([_sum(page.view(np.uint64), keys) for page in pages], np.uint64)


def _sum(words: np.ndarray, keys: np.ndarray) -> int:
    total = 0
    for first in range(0, len(words), _BLOCK):
        block = words[first : first + _BLOCK]
        high = keys[: len(block)] + np.uint64(first * INDEX_FACTOR % _MODULUS)
        mixed = block ^ high
        for shift, factor in zip(SHIFTS, (*FACTORS, 1), strict=True):
            np.right_shift(mixed, np.uint64(shift), out=high)
            mixed ^= high
            mixed *= np.uint64(factor)
        total += int(mixed.sum(dtype=np.uint64))
    return total % _MODULUS
