"""Copies between the pages of a GPU and places in pinned memory, on a CUDA stream of their own.

    plans' stream      ... plan | record fence                     | wait for `done` of copies that use the plan's pages | plan
    copy stream        wait for the fence | sums, pages -> places | places -> pages, sums | sums -> host | record done

The GPU's copy engines move the pages, one call for each run of neighbours, all calls of a message made by one call of Python. A
page of 2 MiB takes the engine about 40 us and a call about 3, so the engine is hardly idle; and no multiprocessor is taken from
a step that runs meanwhile, as a kernel would that reads the host's memory. There is one stream for both directions: a piece of
a load comes back to pages whose content is stored just before, and the next piece is asked for when it has come, so two streams
would only wait for each other.

Buffers and events are kept and used again, because to allocate pinned memory or a GPU's may wait for the whole GPU.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch

from gpu_workers.cuda.kernels.pages.page_sums import PARTS, sum_parts
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.page_sums import WORD_BYTES
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.copy_runs import runs_of
from gpu_workers.pages.copy_stream import CopiedPages, Copies, CopyStream, PlaceCopies

_LEAST_PAGES = 256  # of a message for which a buffer is made
_FIRST_BUFFERS = 4  # are made before they are needed


class _Buffers:
    """What the copies of at most `size` pages need beside the pages, and their events."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.host_ids = torch.empty(size, dtype=torch.int64, pin_memory=True)  # numbers of pages
        self.ids = torch.empty(size, dtype=torch.int64, device=device)
        self.sums = torch.empty(size, PARTS, dtype=torch.int64, device=device)
        self.host_sums = torch.empty(size, PARTS, dtype=torch.int64, pin_memory=True)
        self.stores_begin, self.loads_begin, self.loads_end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        self.done = torch.cuda.Event(blocking=True)  # who waits sleeps, so that no core is busy with it


class _CudaCopies(Copies):
    """Copies that use these buffers until they are waited for."""

    def __init__(self, buffers: _Buffers, n_stored: int, n_loaded: int, free: deque[_Buffers]) -> None:
        self._buffers, self._n_stored, self._n_loaded, self._free = buffers, n_stored, n_loaded, free
        self.done = buffers.done

    def wait(self) -> CopiedPages:
        self.done.synchronize()
        buffers = self._buffers
        parts = buffers.host_sums[: self._n_stored + self._n_loaded].numpy().view(np.uint64)
        sums = parts.sum(axis=1, dtype=np.uint64)
        load_s = buffers.loads_begin.elapsed_time(buffers.loads_end) / 1e3 if self._n_loaded else 0.0
        store_s = buffers.stores_begin.elapsed_time(buffers.loads_begin) / 1e3 if self._n_stored else 0.0
        self._free.append(buffers)  # whoever still holds plans by `done` waits for the next copies too, which does no harm
        return CopiedPages(sums[: self._n_stored], sums[self._n_stored :], load_s, store_s)


class CudaCopyStream(CopyStream):
    """`pages`: [n_pages, bytes of a page] uint8 on a GPU, contiguous. Compiles its kernel when it is made."""

    def __init__(self, pages: torch.Tensor) -> None:
        """Raises: ValueError for pages that are not whole words."""
        if pages.shape[1] % WORD_BYTES:
            raise ValueError(f"bytes of a page: expected a multiple of {WORD_BYTES}, got {pages.shape[1]}")
        self._pages = pages
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
        buffers.host_ids.numpy()[:n] = np.concatenate((stored.pages, loaded.pages))
        ids, sums = buffers.ids[:n], buffers.sums[:n]
        self._fence.record(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._fence)
            ids.copy_(buffers.host_ids[:n], non_blocking=True)
            buffers.stores_begin.record(self._stream)
            sum_parts(self._words, ids[:n_stored], sums[:n_stored])
            _copy(self._pages, stored, to_places=True)
            buffers.loads_begin.record(self._stream)
            _copy(self._pages, loaded, to_places=False)
            sum_parts(self._words, ids[n_stored:], sums[n_stored:])
            buffers.loads_end.record(self._stream)
            buffers.host_sums[:n].copy_(sums, non_blocking=True)
            buffers.done.record(self._stream)
        return _CudaCopies(buffers, n_stored, n - n_stored, self._free)

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
        torch.cuda.synchronize(self._device)


def _copy(pages: torch.Tensor, copies: PlaceCopies, *, to_places: bool) -> None:
    """Queue these copies, to places or from them, on the current stream."""
    if len(copies.pages):
        memory, runs = torch.from_numpy(copies.memory), runs_of(copies)
        on_device = [pages[run.page : run.page + run.n] for run in runs]
        on_host = [memory[run.place : run.place + run.n] for run in runs]
        targets, sources = (on_host, on_device) if to_places else (on_device, on_host)
        torch._foreach_copy_(targets, sources, non_blocking=True)  # pyright: ignore[reportPrivateImportUsage]


def cuda_copies(kv: KvPages) -> CopyQueue:
    """Copies of these pages of a GPU."""
    return CopyQueue(CudaCopyStream(kv.storage.view(kv.n_pages, -1).view(torch.uint8)), kv.n_pages)
