"""The physical keys and values of a rank: one block of memory, page after page, each with all layers.

    storage  [n_pages, n_layers, 2, PAGE_TOKENS, n_kv_heads, head_dim]
                                 |
                                 0 keys, 1 values

Where the format of the pages has scales (`page_format.py`), these follow the numbers of each layer's keys and of its values,
and the last four sizes are one.

A whole page is one stretch of memory, so it can be mapped, copied or sent in one piece: 2 MiB for a model of 32 layers with 8
kv heads of 128 in 16 bits. One layer's pages are a view of the storage in which each page is contiguous and pages lie
`stride(0)` numbers apart. A token's key stands at `keys[layer][page, offset]`, [n_kv_heads, head_dim], contiguous; its slot
mapping is page * PAGE_TOKENS + offset. Which sequence owns which page is known by the scheduler alone.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from gpu_workers.batch.uploads import upload_together
from gpu_workers.layers.page_format import format_of
from gpu_workers.vault.region import Region
from gpu_workers.vault.region_tensor import make_region
from messages.steps import PAGE_TOKENS

_MOST_COPIED_BYTES = 32 << 20  # of pages that are copied at once on a GPU


@dataclass(frozen=True)
class KvShape:
    """The sizes of one page of this rank, and its format."""

    n_layers: int
    n_kv_heads: int  # of this rank
    head_dim: int
    dtype: torch.dtype  # of the numbers in a page: names the format, see `page_format.py`

    @property
    def bytes_per_page(self) -> int:
        """Keys and values of PAGE_TOKENS tokens in all layers, with their scales if the format has some."""
        return math.prod(self.page_sizes) * self.dtype.itemsize

    @property
    def page_sizes(self) -> tuple[int, ...]:
        """The sizes of one page of the storage."""
        if self.vector_entries == (self.head_dim, self.head_dim):
            return self.n_layers, 2, PAGE_TOKENS, self.n_kv_heads, self.head_dim
        return self.n_layers, PAGE_TOKENS * self.n_kv_heads * sum(self.vector_entries)

    @property
    def vector_entries(self) -> tuple[int, int]:
        """Entries of the storage that a key and a value take, with their scales if the format has some."""
        key, value = format_of(self.dtype).vector_bytes(self.head_dim, self.dtype.itemsize)
        return key // self.dtype.itemsize, value // self.dtype.itemsize


class LayerGates(Protocol):
    """Says when the pages of a load have come, layer after layer."""

    def wait(self, layer: int) -> None:
        """What is launched from now on begins after the first `layer` + 1 layers of all pages that are being loaded. Called for
        the layers in order. Nothing waits for a load that has ended."""
        ...


class _GatedLayers(tuple[torch.Tensor, ...]):
    """The pages of each layer. Whoever takes those of a layer waits for it before."""

    gates: LayerGates

    def __getitem__(self, index: Any) -> Any:
        self.gates.wait(index)
        return super().__getitem__(index)


@dataclass(frozen=True)
class KvPages:
    """`keys[layer]` and `values[layer]`: [n_pages, PAGE_TOKENS, n_kv_heads, head_dim], the numbers, views of `storage`. The
    last size is smaller where an entry holds several numbers, see `PageFormat.entries`."""

    shape: KvShape
    storage: torch.Tensor
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    region: Region | None = None  # the memory of the storage, if that can be exchanged for shared memory
    gates: LayerGates | None = None  # of loads that come layer after layer; None: a step waits for whole loads

    @classmethod
    def allocate(cls, shape: KvShape, n_pages: int, device: torch.device | str, is_shared: bool = False) -> KvPages:
        """Zeroed pages: attention multiplies what it masks by zero, which must not be a NaN left in fresh memory. On CPUs the
        kernel zeroes each piece when it is first touched, so that a rank starts without writing all of it.

        is_shared: on a GPU, pages whose region can become shared memory; until then all of them are the same few. On CPUs
        every region can. Raises: ValueError if n_pages is below 1; CudaError, torch.OutOfMemoryError."""
        if n_pages < 1:
            raise ValueError(f"n_pages: expected at least 1, got {n_pages}")
        device = torch.device(device)
        sizes = (n_pages, *shape.page_sizes)
        n_bytes = n_pages * shape.bytes_per_page
        if device.type != "cpu" and not is_shared:
            return cls.over(shape, torch.zeros(sizes, dtype=shape.dtype, device=device))
        region, memory = make_region(n_bytes, device)
        return dataclasses.replace(cls.over(shape, memory.view(shape.dtype).view(sizes)), region=region)

    @classmethod
    def over(cls, shape: KvShape, storage: torch.Tensor) -> KvPages:
        """Pages over existing memory; `storage` has the shape at the head of this file. Raises: ValueError if it has not."""
        expected = (storage.shape[0], *shape.page_sizes)
        if tuple(storage.shape) != expected or storage.dtype != shape.dtype or not storage.is_contiguous():
            got = f"{tuple(storage.shape)} {storage.dtype}"
            raise ValueError(f"storage: expected contiguous {expected} {shape.dtype}, got {got}")
        vectors, layers = PAGE_TOKENS * shape.n_kv_heads, storage.flatten(2).unbind(1)
        key_entries, value_entries = format_of(shape.dtype).entries(shape.head_dim)
        keys = tuple(_numbers_of(layer, shape.n_kv_heads, key_entries) for layer in layers)
        rest = (layer[:, vectors * shape.vector_entries[0] :] for layer in layers)
        return cls(shape, storage, keys, tuple(_numbers_of(layer, shape.n_kv_heads, value_entries) for layer in rest))

    def copy(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copies whole pages, in order after the steps that have been launched: page `targets[i]` gets the content of page
        `sources[i]`.

        Args: [n] int32 each, on the host; targets are distinct, and none is a source. On a GPU it needs up to 32 MiB, and is
        only queued."""
        if self.storage.device.type == "cpu":
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                self.storage[target].copy_(self.storage[source])
            return
        uploaded = upload_together((sources.astype(np.int64), targets.astype(np.int64)), self.storage.device)
        n_together = max(_MOST_COPIED_BYTES // self.shape.bytes_per_page, 1)
        words = self.storage.view(self.n_pages, -1).view(torch.int64)
        for some, others in zip(*(pages.split(n_together) for pages in uploaded), strict=True):
            words.index_copy_(0, others, words.index_select(0, some))

    @property
    def arriving(self) -> KvPages:
        """The same pages for a step that begins while some are still loaded: each layer waits until that layer has come."""
        if self.gates is None:
            return self
        keys = _GatedLayers(self.keys)
        keys.gates = self.gates
        return dataclasses.replace(self, keys=keys)

    def as_bytes(self) -> np.ndarray:
        """The pages as bytes, [n_pages, bytes of a page] uint8, on a CPU: a view."""
        return self.storage.view(self.n_pages, -1).view(torch.uint8).numpy()

    @property
    def n_pages(self) -> int:
        """Number of pages."""
        return int(self.storage.shape[0])


def _numbers_of(pages: torch.Tensor, n_kv_heads: int, entries: int) -> torch.Tensor:
    """The numbers at the beginning of each page: [n_pages, at least so many] -> [n_pages, PAGE_TOKENS, n_kv_heads, entries]."""
    sizes = (PAGE_TOKENS, n_kv_heads, entries)
    return pages[:, : math.prod(sizes)].unflatten(1, sizes)
