"""Checksums of pages on the device; `gpu_workers.layers.page_sums` says what they are and is the reference.

A page is cut into parts, so that a few pages fill many programs. The sums of the parts go to the host, which adds them.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.layers.page_sums import FACTORS, INDEX_FACTOR, SHIFTS

PARTS = 16  # of a page: 128 KiB of one of 2 MiB
_BLOCK = 1024
_INDEX_FACTOR, _FIRST_FACTOR, _SECOND_FACTOR = (tl.constexpr(factor) for factor in (INDEX_FACTOR, *FACTORS))
_FIRST_SHIFT, _SECOND_SHIFT, _LAST_SHIFT = (tl.constexpr(shift) for shift in SHIFTS)
_FIRST_REST, _SECOND_REST, _LAST_REST = (tl.constexpr((1 << (64 - shift)) - 1) for shift in SHIFTS)  # bits that are left


@triton.jit
def _folded(words, SHIFT: tl.constexpr, REST: tl.constexpr):
    """words ^ (words >> SHIFT), int64, as if they had no sign. REST: the bits that are left."""
    return words ^ ((words >> SHIFT) & REST)


@triton.jit(do_not_specialize_on_alignment=["IDS", "SUMS"])
def _page_sums_kernel(PAGES, IDS, SUMS, WORDS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    page = tl.load(IDS + row)
    span = (WORDS + PARTS * BLOCK - 1) // (PARTS * BLOCK) * BLOCK
    total = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, span, BLOCK):
        index = (part * span + first + tl.arange(0, BLOCK)).to(tl.int64)
        is_inside = index < WORDS
        words = tl.load(PAGES + page * WORDS + index, mask=is_inside, other=0)
        mixed = _folded(words ^ ((index + 1) * _INDEX_FACTOR), _FIRST_SHIFT, _FIRST_REST) * _FIRST_FACTOR
        mixed = _folded(mixed, _SECOND_SHIFT, _SECOND_REST) * _SECOND_FACTOR
        mixed = _folded(mixed, _LAST_SHIFT, _LAST_REST)
        total += tl.where(is_inside, mixed, 0)
    tl.store(SUMS + row * PARTS + part, tl.sum(total, axis=0))


def sum_parts(words: torch.Tensor, pages: torch.Tensor, sums: torch.Tensor) -> None:
    """Checksums of some pages, queued on the current stream. words: [n_pages, words of a page] int64, contiguous; pages: [n]
    int64, their numbers; sums: [n, PARTS] int64, gets those of the parts, whose sum is the page's. All on one device."""
    if len(pages):
        _page_sums_kernel[(len(pages), PARTS)](words, pages, sums, WORDS=words.shape[1], PARTS=PARTS, BLOCK=_BLOCK, num_warps=4)
