"""Checks sizes of memory and files for a unit that was forgotten. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_workers.settings import WorkerSettings

_LEAST_BYTES = 1024  # no page of a model is so small
_SIZES = ("kv_memory_bytes", "host_cache_bytes", "host_cache_least_bytes", "disk_cache_bytes")


def size_errors(worker: WorkerSettings) -> Iterator[str]:
    """The errors of sizes that hold nothing, such as 8 for 8GiB: the server would start and have no such cache."""
    for name in _SIZES:
        if 0 < (size := getattr(worker, name)) < _LEAST_BYTES:
            yield f'worker.{name}: expected 0 or at least {_LEAST_BYTES} bytes, or a size such as "{size}GiB", got {size}'
