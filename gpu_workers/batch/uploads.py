"""Copies between host arrays and a device that do not wait for the device.

A plain `.to(device)` waits until the device has run everything queued before it, so host and device would never work at the
same time. A copy from pinned memory is only queued. While pages are copied beside the steps, a kernel does these copies instead
of a copy engine, which would do all pages before them (`cuda/kernels/pages/pinned_memory.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

_LEAST_AROUND_BYTES = 0  # of a copy that a kernel does
CopyPinned = Callable[[torch.Tensor, torch.Tensor], None]  # to a tensor from another one, one of them in pinned memory


class _Way:
    """How this process copies. Used on the step thread."""

    def __init__(self) -> None:
        self.around: CopyPinned | None = None  # copies while the engines are busy; None: they are not
        self._held: deque[tuple[torch.cuda.Event, torch.Tensor]] = deque()  # pinned memory that kernels read

    def hold(self, pinned: torch.Tensor) -> None:
        """Keep memory until what is queued now has run: torch knows of copies alone."""
        while self._held and self._held[0][0].query():
            self._held.popleft()
        event = torch.cuda.Event()
        event.record()
        self._held.append((event, pinned))


_way = _Way()


def go_around(copy: CopyPinned | None) -> None:
    """Let this function, which launches a kernel, do all copies from now on; None: copy engines do them again."""
    _way.around = copy


def copy_staged(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Queue a copy between a device and pinned memory, which must stay until it has run. Both contiguous, of one dtype.
    Returns the target."""
    if _way.around is None or target.nbytes < _LEAST_AROUND_BYTES:
        return target.copy_(source, non_blocking=True)
    _way.around(target, source)
    return target


def upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """The array [...] as a tensor on the device, same shape and dtype. On a CPU it may share the array's memory."""
    on_host = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return on_host
    pinned = torch.empty_like(on_host, pin_memory=True)
    np.copyto(pinned.numpy(), array)  # not by torch, which wakes threads for it: 4 ms for 200 KB on a machine of 16 cores
    if _way.around is None or pinned.nbytes < _LEAST_AROUND_BYTES:
        return pinned.to(device, non_blocking=True)
    on_device = torch.empty_like(pinned, device=device, pin_memory=False)
    copy_staged(on_device, pinned)
    _way.hold(pinned)
    return on_device


def upload_together(arrays: Sequence[np.ndarray], device: torch.device) -> list[torch.Tensor]:
    """Flat arrays [n_i] of one dtype as tensors [n_i] on the device, in one copy."""
    if device.type == "cpu":
        return [upload(array, device) for array in arrays]
    return list(upload(np.concatenate(arrays), device).split([len(array) for array in arrays]))
