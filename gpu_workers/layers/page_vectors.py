"""What every format of pages can do: `PageFormat`. The formats are in `page_format` and `small_pages`."""

from __future__ import annotations

from typing import Protocol

import torch


class PageFormat(Protocol):
    """Writes and reads vectors in pages [n_pages, PAGE_TOKENS, n_kv_heads, entries(head_dim)[0 or 1]], each contiguous,
    at any stride."""

    def vector_bytes(self, head_dim: int, itemsize: int) -> tuple[int, int]:
        """Bytes of a key and of a value of head_dim numbers, with their scales. itemsize: bytes of an entry of the pages."""
        ...

    def entries(self, head_dim: int) -> tuple[int, int]:
        """Entries of the page tensors that hold the numbers of a key and of a value: the last size of their pages."""
        ...

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

    def read_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of whole pages, float32 [n_pages, PAGE_TOKENS, n_kv_heads, head_dim]. Without operations that
        torch spreads over threads, if there are few numbers."""
        ...

    def write_pages(self, k_pages: torch.Tensor, v_pages: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Writes whole pages. Shapes as of `read_pages`; k, v of any float dtype."""
        ...
