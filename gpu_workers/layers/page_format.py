"""How the keys and values of one layer stand in a page. The dtype of the page tensors names the format.

A vector is the head_dim numbers of one token and kv head.
"""

from __future__ import annotations

from typing import Protocol

import torch

from messages.steps import PAGE_TOKENS


class PageFormat(Protocol):
    """Writes and reads vectors in pages [n_pages, PAGE_TOKENS, n_kv_heads, head_dim], each contiguous, at any stride."""

    scale_bytes: int  # beside the numbers of each vector

    def store(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """Writes the keys and values of T tokens. slot_mapping [T] int64; k, v [T, n_kv_heads, head_dim] of any float dtype."""
        ...

    def gather(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, page_ids: torch.Tensor, places: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Reads the keys and values [n, head_dim], of `dtype`, of n vectors. page_ids, places [n] int64: the page of each, and
        which vector of its page it is: token * n_kv_heads + head."""
        ...


class PlainFormat(PageFormat):
    """Numbers as the model computes them. Pages have its dtype."""

    scale_bytes = 0

    def store(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        """See PageFormat."""
        width = k.shape[1] * k.shape[2]
        pages_before = slot_mapping.div(PAGE_TOKENS, rounding_mode="floor")
        places = torch.add(slot_mapping, pages_before, alpha=rows_between_pages(k_pages, width) - PAGE_TOKENS)
        for pages, rows in ((k_pages, k), (v_pages, v)):
            page_rows(pages, width).index_copy_(0, places, rows.reshape(-1, width).to(pages.dtype))

    def gather(
        self, k_pages: torch.Tensor, v_pages: torch.Tensor, page_ids: torch.Tensor, places: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See PageFormat. dtype: that of the pages."""
        width = k_pages.shape[3]
        vectors = torch.add(places, page_ids, alpha=rows_between_pages(k_pages, width))
        return page_rows(k_pages, width).index_select(0, vectors), page_rows(v_pages, width).index_select(0, vectors)


_PLAIN = PlainFormat()
_FORMATS: dict[torch.dtype, PageFormat] = {}  # others than plain numbers


def format_of(dtype: torch.dtype) -> PageFormat:
    """The format of pages of this dtype."""
    return _FORMATS.get(dtype, _PLAIN)


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
