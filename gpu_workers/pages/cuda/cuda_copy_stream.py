"""Copies between the pages of a GPU and places in pinned memory, on a CUDA stream of their own.

    plans' stream      ... plan | record fence                     | wait for `done` of copies that use the plan's pages | plan
    copy stream        wait for the fence | sums, pages -> places | places -> pages, sums | record done

The GPU's copy engines move the pages, one call for each run of neighbours, all calls of a message made by one call of Python. A
page of 2 MiB takes the engine about 40 us and a call about 3, so the engine is hardly idle; and no multiprocessor is taken from
a step that runs meanwhile, as a kernel would that reads all pages from the host's memory. A large load comes layer after layer,
so that a step may begin before it ends (`cuda_layer_copies.py`). There is one stream for both directions: a piece of a load
comes back to pages whose content is stored just before, and the next piece is asked for when it has come, so two streams would
only wait for each other. Pages for places that hold compressed ones go by way of a buffer on the GPU (`cuda_staging.py`), and
come whole.

Engines copy for all streams in the order of the calls. So nothing else goes through them meanwhile: the kernel of the sums
reads page numbers and writes sums in pinned memory, and the numbers of steps take the way of `kernels/pages/pinned_memory.py`.

Buffers and events are kept and used again, because to allocate pinned memory or a GPU's may wait for the whole GPU.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch

from gpu_workers.batch.uploads import go_around
from gpu_workers.cuda.kernels.pages.page_sums import PARTS, sum_parts
from gpu_workers.cuda.kernels.pages.pinned_memory import copy_pinned, warm_pinned_copies
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.page_sums import WORD_BYTES
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.copy_runs import copy_rows, runs_of
from gpu_workers.pages.copy_stream import CopiedPages, Copies, CopyStream, PlaceCompressions, PlaceCopies
from gpu_workers.pages.cuda.cuda_layer_copies import CudaLayerGates
from gpu_workers.pages.cuda.cuda_staging import CudaStaging

_LEAST_PAGES = 256  # of a message for which a buffer is made
_FIRST_BUFFERS = 4  # are made before they are needed


class _Buffers:
    """What the copies of at most `size` pages need beside the pages, and their events."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.ids = torch.empty(size, dtype=torch.int64, pin_memory=True)  # numbers of pages
        self.sums = torch.empty(size, PARTS, dtype=torch.int64, pin_memory=True)
        self.stores_begin, self.loads_begin, self.loads_end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        self.done = torch.cuda.Event(blocking=True)  # who waits sleeps, so that no core is busy with it


class _CudaCopies(Copies):
    """Copies that use these buffers until they are waited for."""

    def __init__(self, buffers: _Buffers, n_stored: int, n_loaded: int, free: deque[_Buffers], comes_by_layers: bool) -> None:
        self._buffers, self._n_stored, self._n_loaded, self._free = buffers, n_stored, n_loaded, free
        self.done, self.comes_by_layers = buffers.done, comes_by_layers

    def wait(self) -> CopiedPages:
        self.done.synchronize()
        buffers = self._buffers
        parts = buffers.sums[: self._n_stored + self._n_loaded].numpy().view(np.uint64)
        sums = parts.sum(axis=1, dtype=np.uint64)
        load_s = buffers.loads_begin.elapsed_time(buffers.loads_end) / 1e3 if self._n_loaded else 0.0
        store_s = buffers.stores_begin.elapsed_time(buffers.loads_begin) / 1e3 if self._n_stored else 0.0
        self._free.append(buffers)  # whoever still holds plans by `done` waits for the next copies too, which does no harm
        return CopiedPages(sums[: self._n_stored], sums[self._n_stored :], load_s, store_s)


class CudaCopyStream(CopyStream):
    """`pages`: [n_pages, bytes of a page] uint8 on a GPU, contiguous. staging: for places that hold compressed pages; None:
    there are none. Compiles its kernels when it is made, before the pages have a content."""

    def __init__(self, pages: torch.Tensor, staging: CudaStaging | None = None, gates: CudaLayerGates | None = None) -> None:
        """gates: by which steps wait for layers of a load; None: all loads come whole. Raises: ValueError for pages that are
        not whole words."""
        if pages.shape[1] % WORD_BYTES:
            raise ValueError(f"bytes of a page: expected a multiple of {WORD_BYTES}, got {pages.shape[1]}")
        self._pages, self._staging, self._gates = pages, staging, gates
        self._words = pages.view(torch.int64)
        self._device = pages.device
        self._stream = torch.cuda.Stream(self._device)
        self._fence = torch.cuda.Event()  # after all plans that were launched; a wait keeps what was recorded before it
        self._free: deque[_Buffers] = deque()
        self._warm_up()

    @torch.inference_mode()
    def queue(self, stored: PlaceCopies, loaded: PlaceCopies) -> _CudaCopies:
        """As of `CopyStream`."""
        n_stored, n = len(stored.pages), len(stored.pages) + len(loaded.pages)
        buffers = self._take(n)
        buffers.ids.numpy()[:n] = np.concatenate((stored.pages, loaded.pages))
        ids, sums = buffers.ids[:n], buffers.sums[:n]
        self._fence.record(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._fence)
            buffers.stores_begin.record(self._stream)
            self._store(stored, ids[:n_stored], sums[:n_stored])
            buffers.loads_begin.record(self._stream)
            comes_by_layers = self._load(loaded, ids[n_stored:], sums[n_stored:])
            buffers.loads_end.record(self._stream)
            buffers.done.record(self._stream)
        return _CudaCopies(buffers, n_stored, n - n_stored, self._free, comes_by_layers)

    def _store(self, stored: PlaceCopies, ids: torch.Tensor, sums: torch.Tensor) -> None:
        """Queue copies to places. ids, sums: of these pages, in pinned memory."""
        if stored.is_compressed and self._staging is not None:
            self._staging.store(stored, ids, sums)
            return
        sum_parts(self._words, ids, sums)
        copy_rows(self._pages, stored, runs_of(stored), to_places=True)

    def _load(self, loaded: PlaceCopies, ids: torch.Tensor, sums: torch.Tensor) -> bool:
        """Queue copies from places; ids and sums as of `_store`. Returns True if they come by layers."""
        if loaded.is_compressed and self._staging is not None:
            self._staging.load(loaded, ids, sums)
            return False
        runs = runs_of(loaded)
        groups = self._gates.groups_of(runs, self._pages.shape[1]) if self._gates is not None else []
        comes_by_layers = self._gates is not None and len(groups) > 1
        if self._gates is not None and comes_by_layers:
            self._gates.load(self._pages, loaded, runs, groups, self._stream)
        else:
            copy_rows(self._pages, loaded, runs, to_places=False)
        sum_parts(self._words, ids, sums)
        return comes_by_layers

    def go_around(self, is_busy: bool) -> None:
        """As of `CopyStream`."""
        go_around(copy_pinned if is_busy else None)

    @torch.inference_mode()
    def compress(self, places: PlaceCompressions) -> _CudaCopies:
        """As of `CopyStream`. Waits for no plan: pages on the GPU are neither read nor written."""
        assert self._staging is not None, "a stream that compresses"
        n = len(places.to_units)
        buffers = self._take(2 * n)
        with torch.cuda.stream(self._stream):
            buffers.stores_begin.record(self._stream)
            buffers.loads_begin.record(self._stream)
            self._staging.compress(places, buffers.sums[n : 2 * n], buffers.sums[:n])
            buffers.loads_end.record(self._stream)
            buffers.done.record(self._stream)
        return _CudaCopies(buffers, n, n, self._free, comes_by_layers=False)

    def hold_plans(self, copies: Copies) -> None:
        """As of `CopyStream`."""
        assert isinstance(copies, _CudaCopies), "copies of this stream"
        torch.cuda.current_stream(self._device).wait_event(copies.done)

    def _take(self, n: int) -> _Buffers:
        for _ in range(len(self._free)):
            buffers = self._free.popleft()
            if buffers.size >= n:
                return buffers
            self._free.append(buffers)
        return _Buffers(max(_LEAST_PAGES, 1 << (n - 1).bit_length()), self._device)

    @torch.inference_mode()
    def _warm_up(self) -> None:
        self._free.extend(_Buffers(_LEAST_PAGES, self._device) for _ in range(_FIRST_BUFFERS))
        buffers = self._free[0]
        for n in (1, 2):
            sum_parts(self._words, buffers.ids[:n].zero_(), buffers.sums[:n])
        if self._staging is not None:
            self._staging.warm_up(buffers.ids[:1], buffers.sums[:1])
        warm_pinned_copies(self._device)
        torch.cuda.synchronize(self._device)


def cuda_copies(kv: KvPages, *, is_compressed: bool = False, is_adaptive: bool = False) -> CopyQueue:
    """Copies of these pages of a GPU. is_compressed: some go to places of compressed pages; is_adaptive: and pages are
    compressed where they lie on the host."""
    pages = kv.storage.view(kv.n_pages, -1).view(torch.uint8)
    staging = CudaStaging(kv, is_adaptive=is_adaptive) if is_compressed else None
    gates = kv.gates if isinstance(kv.gates, CudaLayerGates) else None
    return CopyQueue(CudaCopyStream(pages, staging, gates), kv.n_pages)
