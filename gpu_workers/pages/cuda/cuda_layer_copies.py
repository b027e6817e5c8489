"""Loads of pages by layers, and the CUDA events by which steps wait for each part.

    copy stream     ... | first layers of all pages, event 0 | next layers, event 1 | ...
    plans' stream   layer 0 waits for event 0, ... , the first layer of part 1 for event 1, ...

The events are *external*: a captured step has the waits in its graph, and each replay waits for what was recorded last. One
call of the driver copies the same layers of a run of pages: lines of one length at one distance.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_size_t, c_uint64, c_void_p

import torch

from gpu_workers.layers.kv_pages import LayerGates
from gpu_workers.pages.copy_runs import CopyRun
from gpu_workers.pages.copy_stream import PlaceCopies
from gpu_workers.pages.layer_parts import LayerPart, copied_together, layer_parts
from gpu_workers.vault.cuda_library import CudaLibrary

_HOST, _DEVICE = 1, 2  # CUmemorytype


class _Lines(ctypes.Structure):
    """CUDA_MEMCPY2D: `height` lines of `width` bytes."""

    _fields_ = (
        ("source_x", c_size_t), ("source_y", c_size_t), ("source_type", c_int), ("source_host", c_void_p),
        ("source_device", c_uint64), ("source_array", c_void_p), ("source_pitch", c_size_t),
        ("target_x", c_size_t), ("target_y", c_size_t), ("target_type", c_int), ("target_host", c_void_p),
        ("target_device", c_uint64), ("target_array", c_void_p), ("target_pitch", c_size_t),
        ("width", c_size_t), ("height", c_size_t),
    )  # fmt: skip


_COPY = "cuMemcpy2DAsync_v2"
_ARGUMENTS = {_COPY: (ctypes.POINTER(_Lines), c_void_p)}


class CudaLayerGates(LayerGates):
    """The parts of pages with `n_layers` layers of `layer_bytes` each, and their events on the current device."""

    def __init__(self, n_layers: int, layer_bytes: int) -> None:
        """Raises: CudaError without a driver."""
        self.layer_bytes = layer_bytes
        self.parts = layer_parts(n_layers, layer_bytes)
        self._events = {part.first: torch.cuda.Event(external=True) for part in self.parts}
        self._library = CudaLibrary(_ARGUMENTS)
        self._copy = self._library.function(_COPY)
        for event in self._events.values():
            event.record()  # a wait in a capture needs an event that exists

    def wait(self, layer: int) -> None:
        """As of `LayerGates`, for the current stream."""
        if (event := self._events.get(layer)) is not None:
            torch.cuda.current_stream().wait_event(event)

    def groups_of(self, runs: Sequence[CopyRun], page_bytes: int) -> list[Sequence[LayerPart]]:
        """Which parts of these runs are copied together; fewer than two groups: the load comes whole."""
        return copied_together(self.parts, runs, page_bytes)

    def load(
        self, pages: torch.Tensor, copies: PlaceCopies, runs: Sequence[CopyRun], groups: Sequence[Sequence[LayerPart]],
        stream: torch.cuda.Stream,
    ) -> None:  # fmt: skip
        """Queue copies of places to pages on a stream, group after group, each with the events of its parts. pages: [n_pages,
        bytes of a page] uint8 on the device, contiguous. Raises: CudaError."""
        device_pitch, host_pitch = pages.stride(0), copies.memory.strides[0]
        lines = _Lines(source_type=_HOST, source_pitch=host_pitch, target_type=_DEVICE, target_pitch=device_pitch)
        on_device, on_host = pages.data_ptr(), copies.memory.ctypes.data
        argument, handle, copy, status = ctypes.byref(lines), c_void_p(stream.cuda_stream), self._copy, 0
        for group in groups:
            first = group[0].first * self.layer_bytes
            lines.width = group[-1].end * self.layer_bytes - first
            for run in runs:
                lines.source_host = on_host + run.place * host_pitch + first
                lines.target_device = on_device + run.page * device_pitch + first
                lines.height = run.n
                status = status or copy(argument, handle)
            self._library.check(_COPY, status)
            for part in group:
                self._events[part.first].record(stream)
