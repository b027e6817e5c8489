"""How the keys and values of one layer stand in a page. The dtype of the page tensors names the format.

    bfloat16 ...    the numbers of the model
    int8            each vector (the head_dim numbers of one token and kv head) as integers, with one scale
    float8_e4m3fn   the same as 8-bit floats: three binary digits, and sixteen powers of two
    uint8           keys of 32 levels and values of 11 after a Hadamard transform, see `small_pages`

A scale belongs to one token, so it is written once, with its token: what a page holds does not depend on how a prompt was cut
into steps, and a token that is computed again gets the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_workers.layers.page_vectors import PageFormat
from gpu_workers.layers.small_pages import SmallFormat
from gpu_workers.layers.vector_bytes import scaled_vector_bytes
from messages.steps import PAGE_TOKENS

FP8 = torch.float8_e4m3fn
INT4 = torch.uint8  # names the pages of `small_pages`
GREATEST_FP8 = 448.0
FP8_STEP, N_FP8_STEPS = 32.0, 7  # the numbers from 256 to 448
FP8_DROPPED_BITS = 20  # of a float32's 23: e4m3 has three
GREATEST_INT8 = 127.0
_WHOLE = 1.5 * 2**23  # floats of this size are whole numbers
LEAST_SCALE = 1e-30  # vectors of smaller numbers become zeros: the reciprocal of their scale might be infinite


Quantise = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class PlainFormat(PageFormat):
    """Numbers as the model computes them. Pages have its dtype."""

    def vector_bytes(self, head_dim: int, itemsize: int) -> tuple[int, int]:
        """The numbers alone. Arguments as in `PageFormat.vector_bytes`."""
        return head_dim * itemsize, head_dim * itemsize

    def entries(self, head_dim: int) -> tuple[int, int]:
        """One for each number."""
        return head_dim, head_dim

    def store(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Copies each vector to its place. Arguments as in `PageFormat.store`."""
        width = k.shape[1] * k.shape[2]
        pages_before = slot_mapping.div(PAGE_TOKENS, rounding_mode="floor")
        places = torch.add(slot_mapping, pages_before, alpha=rows_between_pages(k_pages, width) - PAGE_TOKENS)
        for pages, rows in ((k_pages, k), (v_pages, v)):
            page_rows(pages, width).index_copy_(0, places, rows.reshape(-1, width).to(pages.dtype))

    def gather(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, page_ids: torch.Tensor, places: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies the vectors out of their pages. Arguments as in `PageFormat.gather`; dtype: that of the pages."""
        width = k_pages.shape[3]
        vectors = torch.add(places, page_ids, alpha=rows_between_pages(k_pages, width))
        return page_rows(k_pages, width).index_select(0, vectors), page_rows(v_pages, width).index_select(0, vectors)

    def read_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return k_pages.float(), v_pages.float()

    def write_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        k_pages.copy_(k)
        v_pages.copy_(v)


class ScaledFormat(PageFormat):
    """Eight bits for each number, times the scale of its vector.

    Scales are bfloat16, [n_kv_heads, PAGE_TOKENS], and follow the numbers of their page: those of the keys after the keys,
    those of the values after the values. A scale is rounded before it is used, so its few digits cost nothing."""

    def __init__(self, quantise_keys: Quantise, quantise_values: Quantise) -> None:
        """Both as `quantise_int8`."""
        self._quantise_keys, self._quantise_values = quantise_keys, quantise_values

    def vector_bytes(self, head_dim: int, itemsize: int) -> tuple[int, int]:
        """A byte for each number, and a scale. Arguments as in `PageFormat.vector_bytes`."""
        return scaled_vector_bytes(head_dim)

    def entries(self, head_dim: int) -> tuple[int, int]:
        """One for each number."""
        return head_dim, head_dim

    def store(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Quantises each vector and writes its numbers and its scale. Arguments as in `PageFormat.store`."""
        page_ids, tokens = slot_mapping // PAGE_TOKENS, slot_mapping % PAGE_TOKENS
        for pages, quantised in ((k_pages, self._quantise_keys(k)), (v_pages, self._quantise_values(v))):
            numbers, scales_of(pages)[page_ids, :, tokens] = quantised
            pages.view(torch.int8)[page_ids, tokens] = numbers.view(torch.int8)  # 8-bit floats cannot be indexed everywhere

    def gather(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, page_ids: torch.Tensor, places: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiplies the numbers of each vector by its scale, in `dtype`. Arguments as in `PageFormat.gather`."""
        tokens, heads = places // k_pages.shape[2], places % k_pages.shape[2]
        keys, values = (
            pages.view(torch.int8)[page_ids, tokens, heads].view(pages.dtype).to(dtype)
            * scales_of(pages)[page_ids, heads, tokens, None].to(dtype)
            for pages in (k_pages, v_pages)
        )
        return keys, values

    def read_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = (pages.float() * scales_of(pages).transpose(1, 2).float()[..., None] for pages in (k_pages, v_pages))
        return keys, values

    def write_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        for pages, (numbers, scales) in ((k_pages, self._quantise_keys(k)), (v_pages, self._quantise_values(v))):
            scales_of(pages).copy_(scales.transpose(1, 2))
            pages.view(torch.int8).copy_(numbers.view(torch.int8))


def quantise_int8(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """vectors [..., n] of any float dtype -> int8 [..., n] and their scales, bfloat16 [...]: the greatest magnitude / 127.
    Clamping keeps the greatest number within half a step where the scale was rounded down."""
    scaled, scales = _scaled(vectors, GREATEST_INT8)
    rounded = (scaled.clamp(-GREATEST_INT8, GREATEST_INT8) + _WHOLE) - _WHOLE  # as torch.round, which asks for threads
    return rounded.to(torch.int8), scales


def quantise_fp8(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `quantise_int8`, as e4m3: the scale is the greatest magnitude / 448, which no number leaves where the scale was
    rounded down, because all up to 464 become 448."""
    scaled, scales = _scaled(vectors, GREATEST_FP8)
    return scaled.to(FP8), scales


def quantise_fp8_keys(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `quantise_fp8`, but the greatest magnitude becomes that number from 256 to 448, in steps of 32, with which the squares
    of the rounding errors have the least sum. It is itself hardly rounded with any of them."""
    scaled, scales = _scaled(keys, _fp8_tops(keys.float()))
    return scaled.to(FP8), scales


def _fp8_tops(vectors: torch.Tensor) -> torch.Tensor:
    """What the greatest magnitude of each vector is to become, float32 [...]. vectors [..., n] float32."""
    greatest = vectors.abs().amax(-1)
    units = torch.where(greatest > LEAST_SCALE, greatest.reciprocal(), 0.0)
    best, least = torch.full_like(greatest, GREATEST_FP8), torch.full_like(greatest, float("inf"))
    for index in range(N_FP8_STEPS):
        top = GREATEST_FP8 - FP8_STEP * index
        scaled = vectors * (units * top)[..., None]
        errors = (fp8_digits(scaled) - scaled).square().sum(-1) * (1 / top**2)
        best, least = torch.where(errors < least, top, best), torch.minimum(errors, least)
    return best


def fp8_digits(x: torch.Tensor) -> torch.Tensor:
    """x, float32, with the digits of e4m3 (ties to even), and with all powers of two. By its bits, as kernels do it."""
    bits = x.view(torch.int32)
    half = (1 << (FP8_DROPPED_BITS - 1)) - 1
    rounded = bits + half + ((bits >> FP8_DROPPED_BITS) & 1)
    return (rounded >> FP8_DROPPED_BITS << FP8_DROPPED_BITS).view(torch.float32)


def _scaled(vectors: torch.Tensor, greatest: float | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors divided by their scales, float32 [..., n], and the scales: the greatest magnitude / `greatest`."""
    wide = vectors.float()
    scales = (wide.abs().amax(-1) * (1 / greatest)).bfloat16()
    inverses = torch.where(scales > LEAST_SCALE, scales.float().reciprocal(), 0.0)
    return wide * inverses[..., None], scales


_PLAIN = PlainFormat()
_FORMATS: dict[torch.dtype, PageFormat] = {
    torch.int8: ScaledFormat(quantise_int8, quantise_int8),
    FP8: ScaledFormat(quantise_fp8_keys, quantise_fp8),
    INT4: SmallFormat(),
}


def format_of(dtype: torch.dtype) -> PageFormat:
    """The format of pages of this dtype."""
    return _FORMATS.get(dtype, _PLAIN)


def scales_of(pages: torch.Tensor) -> torch.Tensor:
    """The scales that follow the numbers of these pages: a view, bfloat16 [n_pages, n_kv_heads, PAGE_TOKENS].

    pages: 8 bits a number, [n_pages, PAGE_TOKENS, n_kv_heads, head_dim] within their storage."""
    pairs = pages.view(torch.bfloat16)
    sizes = (pages.shape[0], pages.shape[2], PAGE_TOKENS)
    return pairs.as_strided(sizes, (pairs.stride(0), PAGE_TOKENS, 1), pairs.storage_offset() + pairs[0].numel())


def page_rows(pages: torch.Tensor, width: int) -> torch.Tensor:
    """All memory from the first of a layer's pages to the end of the last one, as rows of `width` numbers.

    pages [n_pages, PAGE_TOKENS, n_kv_heads, head_dim], each page contiguous; width: head_dim, or that times n_kv_heads.
    Returns a view [n, width]; page p begins at row p * rows_between_pages(pages, width)."""
    per_page = pages[0].numel() // width
    n_rows = (pages.shape[0] - 1) * rows_between_pages(pages, width) + per_page
    return pages.as_strided((n_rows, width), (width, 1))


def rows_between_pages(pages: torch.Tensor, width: int) -> int:
    """How many rows of `page_rows` lie between the beginnings of two pages."""
    return pages.stride(0) // width
