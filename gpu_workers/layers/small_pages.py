"""Pages of small integers: keys of five bits, values of four. The format of `small_integers` in memory.

    numbers  [PAGE_TOKENS, n_kv_heads, head_dim / 2]    a byte: the low four bits of number i of the first half of a vector, and
                                                        above them those of number i of the second half
    fifths   [PAGE_TOKENS, n_kv_heads, head_dim / 8]    keys alone: the fifth bits of all numbers in order
    scales   [PAGE_TOKENS, n_kv_heads, 2]               the scale codes of both halves

These parts of the keys of a layer's page follow one another, then those of its values. A token writes its own bytes and no
others.
"""

from __future__ import annotations

import torch

from gpu_workers.layers.page_vectors import PageFormat
from gpu_workers.layers.small_integers import halves_of, pack_bits, quantise, restored, unpack_bits, vectors_of
from gpu_workers.layers.vector_bytes import small_vector_bytes
from messages.steps import PAGE_TOKENS

_KEY_BITS, _VALUE_BITS = 5, 4


class SmallFormat(PageFormat):
    """The `PageFormat` of keys of five bits and values of four. head_dim: a power of two, at least 16."""

    def vector_bytes(self, head_dim: int, itemsize: int) -> tuple[int, int]:
        """With two scales each. Arguments as in `PageFormat.vector_bytes`."""
        return small_vector_bytes(head_dim)

    def entries(self, head_dim: int) -> int:
        """Two numbers in a byte; the fifth bits of keys stand elsewhere."""
        return head_dim // 2

    def store(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Quantises each vector and writes its parts. Arguments as in `PageFormat.store`."""
        page_ids, tokens = slot_mapping // PAGE_TOKENS, slot_mapping % PAGE_TOKENS
        for pages, vectors, bits in ((k_pages, k, _KEY_BITS), (v_pages, v, _VALUE_BITS)):
            codes, scale_codes = quantise(halves_of(vectors), bits)
            numbers, fifths, scales = parts_of(pages, bits)
            numbers[page_ids, tokens] = (codes[..., 0, :] & 15) | (codes[..., 1, :] << 4)
            scales[page_ids, tokens] = scale_codes
            if bits == _KEY_BITS:
                fifths[page_ids, tokens] = pack_bits(codes.flatten(-2) >> 4)

    def gather(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, page_ids: torch.Tensor, places: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Restores vectors in float32, then `dtype`. Arguments as in `PageFormat.gather`."""
        at = page_ids, places // k_pages.shape[2], places % k_pages.shape[2]
        return _read(k_pages, at, _KEY_BITS).to(dtype), _read(v_pages, at, _VALUE_BITS).to(dtype)


def parts_of(pages: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers, fifths and scales of these pages: views of their storage, [n_pages, ...] as at the head of this file.
    Values (bits: 4) have fifths of no size. pages: keys[layer] or values[layer] of `KvPages`."""
    n_pages, _, n_kv_heads, width = pages.shape
    n_fifths = width // 4 if bits == _KEY_BITS else 0
    start = pages.storage_offset() + pages[0].numel()
    parts = []
    for n in (n_fifths, 2):
        strides = (pages.stride(0), n_kv_heads * n, n, 1)
        parts.append(pages.as_strided((n_pages, PAGE_TOKENS, n_kv_heads, n), strides, start))
        start += PAGE_TOKENS * n_kv_heads * n
    return pages, parts[0], parts[1]


def _read(pages: torch.Tensor, at: tuple[torch.Tensor, torch.Tensor, torch.Tensor], bits: int) -> torch.Tensor:
    """The vectors, float32 [n, head_dim], at these pages, tokens and heads, [n] each."""
    numbers, fifths, scales = (part[at] for part in parts_of(pages, bits))
    codes = torch.stack((numbers & 15, numbers >> 4), -2)
    if bits == _KEY_BITS:
        codes |= unpack_bits(fifths).view_as(codes) << 4
    return vectors_of(restored(codes, scales, bits))
