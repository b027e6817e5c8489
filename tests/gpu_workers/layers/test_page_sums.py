"""Checksums of pages see any bit and any order."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.layers.page_sums import FACTORS, INDEX_FACTOR, SHIFTS, page_sums

_MODULUS = 1 << 64


def _plain(page: bytes) -> int:
    total = 0
    for index in range(len(page) // 8):
        word = int.from_bytes(page[8 * index : 8 * index + 8], "little")
        mixed = word ^ ((index + 1) * INDEX_FACTOR % _MODULUS)
        for shift, factor in zip(SHIFTS, (*FACTORS, 1), strict=True):
            mixed = (mixed ^ (mixed >> shift)) * factor % _MODULUS
        total += mixed
    return total % _MODULUS


def _sum(page: bytes) -> int:
    return int(page_sums(np.frombuffer(page, np.uint8)[None])[0])


@given(st.integers(1, 40), st.integers())
def test_sums_are_those_of_the_definition(n_words: int, seed: int) -> None:
    page = random.Random(seed).randbytes(8 * n_words)
    assert _sum(page) == _plain(page)


def test_pages_of_many_blocks_have_the_sum_of_the_definition() -> None:
    page = random.Random(1).randbytes(8 * 20_000)
    assert _sum(page) == _plain(page)


@pytest.mark.parametrize("content", [bytes(256), random.Random(2).randbytes(256)], ids=["zeros", "random"])
def test_each_flipped_bit_and_each_exchange_of_words_changes_the_sum(content: bytes) -> None:
    seen = {_sum(content)}
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        seen.add(_sum(bytes(damaged)))
    assert len(seen) == 8 * len(content) + 1
    words = [content[at : at + 8] for at in range(0, len(content), 8)]
    exchanged = b"".join([*words[1:], words[0]])
    assert exchanged == content or _sum(exchanged) not in seen


def test_pages_that_are_not_whole_words_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a multiple of 8, got 12"):
        page_sums(np.zeros((1, 12), np.uint8))
