"""Pages of small integers: keys of 32 levels, values of 11. The format of `small_integers` in memory.

A key's number is a field of five bits. Two numbers of a value, number i of its first half (x) and of its second half (y), are a
field of seven bits: 11 x + y. The parts of the keys of a layer's page follow one another, then those of its values:

    numbers  [PAGE_TOKENS, n_kv_heads, head_dim / 2 or / 4]        the low four bits of two fields in a byte: of keys, numbers i
                                                                   of the first half and of the second; of values, fields i
                                                                   and i + head_dim / 4
    planes   [PAGE_TOKENS, n_kv_heads, 2 or 3, head_dim / 16]      the higher bits: bit i of a plane belongs to number or field
                                                                   i. Keys have a plane for each half, values one for each bit
    scales   [n_kv_heads, 2, PAGE_TOKENS]                          the scale codes of both halves

A token writes its own bytes and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpu_workers.layers.page_vectors import PageFormat
from gpu_workers.layers.small_integers import halves_of, pack_bits, quantise, restored, unpack_bits, vectors_of
from gpu_workers.layers.vector_bytes import small_vector_bytes
from messages.steps import PAGE_TOKENS

KEY_LEVELS, VALUE_LEVELS = 32, 11
KEY_PLANES, VALUE_PLANES = 2, 3
Quantise = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
_Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # numbers, unpacked bits of the planes, and scales


class SmallFormat(PageFormat):
    """The `PageFormat` of keys of 32 levels and values of 11. head_dim: a power of two, at least 32."""

    def __init__(self, quantise: Quantise = quantise) -> None:
        """quantise: chooses codes and scales. Kernels choose as `small_integers.quantise`."""
        self._quantise = quantise

    def vector_bytes(self, head_dim: int, itemsize: int) -> tuple[int, int]:
        """With two scales each. Arguments as in `PageFormat.vector_bytes`."""
        return small_vector_bytes(head_dim)

    def entries(self, head_dim: int) -> tuple[int, int]:
        """Two fields in a byte; their higher bits stand elsewhere."""
        return head_dim // 2, head_dim // 4

    def store(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Quantises each vector and writes its parts. Arguments as in `PageFormat.store`."""
        at = slot_mapping // PAGE_TOKENS, slot_mapping % PAGE_TOKENS
        _write(parts_of(k_pages, is_key=True), at, *self._packed_keys(k))
        _write(parts_of(v_pages, is_key=False), at, *self._packed_values(v))

    def gather(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, page_ids: torch.Tensor, places: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Restores vectors in float32, then `dtype`. Arguments as in `PageFormat.gather`."""
        tokens, heads = places // k_pages.shape[2], places % k_pages.shape[2]
        keys = _keys_of(*_read(parts_of(k_pages, is_key=True), page_ids, tokens, heads))
        values = _values_of(*_read(parts_of(v_pages, is_key=False), page_ids, tokens, heads))
        return keys.to(dtype), values.to(dtype)

    def read_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = (parts_of(pages, is_key=is_key) for pages, is_key in ((k_pages, True), (v_pages, False)))
        return (
            _keys_of(keys.numbers, unpack_bits(keys.planes), keys.scales.permute(0, 3, 1, 2)),
            _values_of(values.numbers, unpack_bits(values.planes), values.scales.permute(0, 3, 1, 2)),
        )

    def write_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        both = (
            (parts_of(k_pages, is_key=True), self._packed_keys(k)),
            (parts_of(v_pages, is_key=False), self._packed_values(v)),
        )
        for parts, (numbers, bits, scales) in both:
            parts.numbers.copy_(numbers)
            parts.planes.copy_(pack_bits(bits))
            parts.scales.copy_(scales.permute(0, 2, 3, 1))

    def _packed_keys(self, keys: torch.Tensor) -> _Packed:
        codes, scale_codes = self._quantise(halves_of(keys), KEY_LEVELS)
        first, second = codes.unbind(-2)
        return (first & 15) | (second << 4), codes >> 4, scale_codes

    def _packed_values(self, values: torch.Tensor) -> _Packed:
        codes, scale_codes = self._quantise(halves_of(values), VALUE_LEVELS)
        fields = codes[..., 0, :] * VALUE_LEVELS + codes[..., 1, :]
        low, high = (fields & 15).chunk(2, -1)
        return low | (high << 4), torch.stack([(fields >> bit) & 1 for bit in (4, 5, 6)], -2), scale_codes


def _keys_of(numbers: torch.Tensor, planes: torch.Tensor, scale_codes: torch.Tensor) -> torch.Tensor:
    codes = torch.stack((numbers & 15, numbers >> 4), -2) | (planes << 4)
    return vectors_of(restored(codes, scale_codes, KEY_LEVELS))


def _values_of(numbers: torch.Tensor, planes: torch.Tensor, scale_codes: torch.Tensor) -> torch.Tensor:
    fields = torch.cat((numbers & 15, numbers >> 4), -1)
    for plane, bit in zip(planes.unbind(-2), (4, 5, 6), strict=True):
        fields |= plane << bit
    codes = torch.stack((fields // VALUE_LEVELS, fields % VALUE_LEVELS), -2)
    return vectors_of(restored(codes, scale_codes, VALUE_LEVELS))


@dataclass(frozen=True)
class SmallParts:
    """Views of the storage of one layer's keys or values, [n_pages, ...] as at the head of this file."""

    numbers: torch.Tensor
    planes: torch.Tensor
    scales: torch.Tensor


def parts_of(pages: torch.Tensor, *, is_key: bool) -> SmallParts:
    """The parts of these pages: keys[layer] or values[layer] of `KvPages`."""
    n_pages, _, n_kv_heads, width = pages.shape
    n_planes, plane_bytes = (KEY_PLANES, width // 8) if is_key else (VALUE_PLANES, width // 4)
    vectors, plane_start = PAGE_TOKENS * n_kv_heads, pages.storage_offset() + pages[0].numel()
    sizes = (n_pages, PAGE_TOKENS, n_kv_heads, n_planes, plane_bytes)
    strides = (pages.stride(0), n_kv_heads * n_planes * plane_bytes, n_planes * plane_bytes, plane_bytes, 1)
    planes = pages.as_strided(sizes, strides, plane_start)
    scale_sizes, scale_strides = (n_pages, n_kv_heads, 2, PAGE_TOKENS), (pages.stride(0), 2 * PAGE_TOKENS, PAGE_TOKENS, 1)
    scales = pages.as_strided(scale_sizes, scale_strides, plane_start + vectors * n_planes * plane_bytes)
    return SmallParts(pages, planes, scales)


def _write(
    parts: SmallParts, at: tuple[torch.Tensor, torch.Tensor], numbers: torch.Tensor, bits: torch.Tensor, scales: torch.Tensor
) -> None:
    """Writes T vectors of all heads to these pages and tokens. bits: of the planes, 0 or 1, unpacked."""
    parts.numbers[at] = numbers
    parts.planes[at] = pack_bits(bits)
    parts.scales[at[0], :, :, at[1]] = scales


def _read(
    parts: SmallParts, page_ids: torch.Tensor, tokens: torch.Tensor, heads: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers, unpacked bits of the planes, and scales at these pages, tokens and heads, [n] each."""
    bits = unpack_bits(parts.planes[page_ids, tokens, heads])
    return parts.numbers[page_ids, tokens, heads], bits, parts.scales[page_ids, heads, :, tokens]
