"""The disk tier of one rank: where its file is, and its thread, which begins with the first move.

A standby gets no moves, so it opens no file. The file's name is that of the rank in the first seat, because both seats use one
file in turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gpu_workers.disk.disk_file import DiskFile
from gpu_workers.disk.disk_queue import Answer
from gpu_workers.disk.disk_threads import DiskThreads
from gpu_workers.disk.disk_work import DiskWork
from gpu_workers.engine import Engine
from gpu_workers.process.rank_memory import layout_of
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import MoveDiskPages
from messages.ids import memory_owner
from messages.lifecycle.spawn_spec import SpawnSpec

_CLOSE_S = 0.1  # for the thread to end and to remove the file; then they are left as they are


class RankDisk(Collector):
    """Used on the step thread; its metrics on any thread. `path`: of the file."""

    def __init__(self, path: Path, settings: WorkerSettings) -> None:
        self._path, self._settings = path, settings
        self._log = structlog.get_logger()
        self._threads: DiskThreads | None = None
        self._must_clear = False

    def move(self, engine: Engine[Any], moves: MoveDiskPages, answer: Answer) -> None:
        """Do these moves soon. `answer` is called on any thread, if there are pages to read. Raises: ValueError for an unknown
        place, or when the engine has no tiers."""
        if self._threads is None:
            self._threads = self._begin(engine)
        self._threads.move(moves, answer)

    def clear(self) -> None:
        """Forget all contents."""
        if self._threads is not None:
            self._threads.clear()
        else:
            self._must_clear = True

    def close(self) -> None:
        """End the thread, and remove the file."""
        if self._threads is not None and not self._threads.close(_CLOSE_S):
            self._log.warning("the disk has not answered in time: its file stays", file=str(self._path))

    def collect(self) -> Iterable[Metric]:
        """What was moved and what was not; nothing before the first move."""
        if self._threads is not None:
            text = "Pages of the disk tier, by what became of them."
            family = CounterMetricFamily("tardigrade_worker_disk_pages", text, labels=["outcome"])
            for outcome, count in vars(self._threads.counts).items():
                family.add_metric([outcome], count)
            yield family

    def _begin(self, engine: Engine[Any]) -> DiskThreads:
        host, capacity = engine.host_tier, engine.capacity()
        if host is None or not capacity.n_disk_pages:
            got = f"{capacity.n_host_pages} and {capacity.n_disk_pages}"
            raise ValueError(f"moves to a disk: expected a host tier and places on the disk, got {got} places")
        n_places = capacity.n_disk_pages
        work = DiskWork(lambda: self._open(host, n_places), host, self._log.warning, _now_s)
        threads = DiskThreads(work, host, capacity.n_host_pages, n_places, _now_s)
        if self._must_clear:
            threads.clear()
        threads.start()
        return threads

    def _open(self, host: PagePlaces, n_places: int) -> DiskFile:
        """Called on the disk thread. Raises: OSError."""
        fingerprint = sha256(layout_of(self._settings)).digest()
        file = DiskFile(self._path, fingerprint, host.page_bytes, n_places)
        self._log.info("disk tier opened", file=str(self._path), is_direct=file.is_direct, places=n_places)
        return file


def _now_s() -> float:
    return time.monotonic()


def disk_of(spec: SpawnSpec, settings: WorkerSettings) -> RankDisk:
    """The disk tier of the rank with this spawn spec."""
    name = memory_owner(spec.name).replace("/", "-")
    return RankDisk(Path(settings.disk_cache_dir or spec.run_dir) / f"{name}.pages", settings)
