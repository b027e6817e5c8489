"""Pages of a GPU on their way to or from places that hold compressed pages.

    store   compress some pages to the buffer | sums | buffer -> places | the next pages ...
    load    places -> buffer | sums | expand to pages | the next places ...
    compress on the host   frames -> wide buffer | sums | compress to the buffer | sums | buffer -> units | the next frames ...

The GPU compresses, so a quarter of the bytes crosses the bus. All of it runs on the stream of copies, one after the other, so
small buffers are enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import torch

from gpu_workers.cuda.kernels.pages.page_sums import sum_parts
from gpu_workers.cuda.kernels.pages.small_places import compress_pages, expand_places
from gpu_workers.layers.int4_places import Int4Places
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.pages.copy_runs import copy_rows, runs_of
from gpu_workers.pages.copy_stream import PlaceCompressions, PlaceCopies

_BUFFER_BYTES = 16 << 20  # 29 compressed pages of Llama-3.1-8B: enough for a GPU to be busy with


class CudaStaging:
    """`kv`: pages on a GPU. Its methods are called for the stream of copies, which is the current one."""

    def __init__(self, kv: KvPages, *, is_adaptive: bool = False) -> None:
        """is_adaptive: `compress` will be called. Raises: ConfigError when the heads cannot be small integers."""
        self._kv = kv
        place_bytes = Int4Places(kv.shape).place_bytes
        n = max(_BUFFER_BYTES // place_bytes, 1)
        self._buffer = torch.empty(n, place_bytes, dtype=torch.uint8, device=kv.storage.device)
        self._words = self._buffer.view(torch.int64)
        self._rows = torch.arange(n, device=kv.storage.device)
        n_wide = max(_BUFFER_BYTES // kv.shape.bytes_per_page, 1) if is_adaptive else 0
        self._wide = torch.zeros(n_wide, *kv.shape.page_sizes, dtype=kv.shape.dtype, device=kv.storage.device)
        self._wide_bytes = self._wide.view(n_wide, kv.shape.bytes_per_page // kv.shape.dtype.itemsize).view(torch.uint8)

    def store(self, stored: PlaceCopies, ids: torch.Tensor, sums: torch.Tensor) -> None:
        """Queue copies of pages to places. ids: the numbers of the pages, [n] int64; sums: [n, PARTS] int64, gets the checksums
        of what is copied, by parts. Both in pinned memory."""
        for part, copies in _parts_of(stored, len(self._buffer)):
            compress_pages(self._kv.storage, self._kv.shape, ids[part], self._buffer)
            self._sum(sums[part])
            copy_rows(self._buffer, copies, runs_of(copies), to_places=True)

    def load(self, loaded: PlaceCopies, ids: torch.Tensor, sums: torch.Tensor) -> None:
        """Queue copies of places to pages. Arguments as of `store`."""
        for part, copies in _parts_of(loaded, len(self._buffer)):
            copy_rows(self._buffer, copies, runs_of(copies), to_places=False)
            self._sum(sums[part])
            expand_places(self._buffer, self._kv.storage, self._kv.shape, ids[part])

    def compress(self, places: PlaceCompressions, old_sums: torch.Tensor, new_sums: torch.Tensor) -> None:
        """Queue compressions of what lies on the host. old_sums, new_sums: [n, PARTS] int64, get the checksums of what was in
        the frames and of what is written to the units."""
        none = np.zeros(len(places.to_units), np.int64)
        frames = PlaceCopies(none, places.frames, places.from_frames)
        units = PlaceCopies(none, places.units, places.to_units, is_compressed=True)
        n_together = min(len(self._wide), len(self._buffer))
        for (part, wide), (_, small) in zip(_parts_of(frames, n_together), _parts_of(units, n_together), strict=True):
            rows = self._rows[: len(wide.places)]
            copy_rows(self._wide_bytes, wide, runs_of(wide), to_places=False)
            sum_parts(self._wide_bytes.view(torch.int64), rows, old_sums[part])
            compress_pages(self._wide, self._kv.shape, rows, self._buffer)
            self._sum(new_sums[part])
            copy_rows(self._buffer, small, runs_of(small), to_places=True)

    def warm_up(self, ids: torch.Tensor, sums: torch.Tensor) -> None:
        """Compile the kernels. ids: [1], of a page without content, which is zeroed; sums: [1, PARTS]."""
        compress_pages(self._kv.storage, self._kv.shape, ids, self._buffer)
        self._sum(sums)
        expand_places(self._buffer, self._kv.storage, self._kv.shape, ids)
        self._kv.storage.view(torch.uint8)[ids[0]].zero_()

    def _sum(self, sums: torch.Tensor) -> None:
        sum_parts(self._words, self._rows[: len(sums)], sums)


def _parts_of(copies: PlaceCopies, size: int) -> Iterator[tuple[slice, PlaceCopies]]:
    """`size` copies at once: which of them, and the copies between rows of a buffer and places."""
    for first in range(0, len(copies.places), size):
        part = slice(first, first + size)
        rows = np.arange(len(copies.places[part]))
        yield part, dataclasses.replace(copies, pages=rows, places=copies.places[part])
