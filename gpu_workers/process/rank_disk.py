"""The disk tier of one rank: where its file is, and its thread, which begins with the first move.

A standby gets no moves, so it opens no file. The file's name is that of the rank in the first seat, because both seats use one
file in turn.

The file of a process that has not ended in order is used if somebody knows how that one has died: the scheduler, which knew
its memory and does not suspect it, or the vault, which has kept its memory. All others begin it anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
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
from gpu_workers.process.rank_memory import RankMemory, layout_of
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.page_places import PagePlaces
from messages.caches.disk_moves import DiskMoves
from messages.ids import memory_owner
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.release import release_version
from messages.steps import Reset

_CLOSE_S = 0.1  # for the thread to end and to remove the file; then they are left as they are


class RankDisk(Collector):
    """Used on the step thread; its metrics on any thread. `path`: of the file. memory: what the rank has in the vault."""

    def __init__(self, path: Path, settings: WorkerSettings, memory: RankMemory | None = None) -> None:
        self._path, self._settings, self._memory = path, settings, memory
        self._has_known_death: bool | None = None  # of the process before; None: nobody has said anything yet
        self._log = structlog.get_logger()
        self._threads: DiskThreads | None = None
        self._must_clear = False

    def begin_epoch(self, reset: Reset) -> None:
        """Moves of this epoch follow. Suspect memory empties the disk, which may have copies of it."""
        if reset.is_memory_suspect:
            self.clear()
        if self._has_known_death is None:
            self._has_known_death = bool(reset.memory_generation) and not reset.is_memory_suspect

    def move(self, engine: Engine[Any], moves: DiskMoves, answer: Answer) -> None:
        """Do these moves soon. `answer` is called on any thread, as `DiskThreads.move` says. Raises: ValueError for an unknown
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
        """End the threads. The file stays for the next process, unless the settings say otherwise."""
        is_removed = not self._settings.disk_cache_kept
        if self._threads is not None and not self._threads.close(_CLOSE_S, is_removed=is_removed):
            self._log.warning("the disk has not answered in time: the next start cannot use its file", file=str(self._path))

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
        work = DiskWork(lambda is_own: self._open(host, n_places, is_own), host, self._log.warning, _now_s)
        threads = DiskThreads(work, host, capacity.n_host_pages, n_places, _now_s)
        if self._must_clear:
            threads.clear()
        threads.start()
        return threads

    def _open(self, host: PagePlaces, n_places: int, is_own: bool) -> DiskFile:
        """Called on a disk thread. is_own: this process has used the file before. Raises: OSError."""
        has_kept_memory = self._memory is not None and self._memory.is_of_gang_before
        is_vouched = is_own or has_kept_memory or bool(self._has_known_death)
        file = DiskFile(self._path, self._fingerprint(), host.page_bytes, n_places, is_vouched=is_vouched)
        facts = {"is_direct": file.is_direct, "places": n_places, "is_new": file.is_new}
        self._log.info("disk tier opened", file=str(self._path), **facts)
        return file

    def _fingerprint(self) -> bytes:
        """Of all that decides what the bytes of a page mean. The file outlives installations, so these count too. Raises:
        OSError."""
        made_by = [release_version(), "" if self._settings.is_hash_chain else version("torch")]
        return sha256(layout_of(self._settings) + repr(made_by).encode()).digest()


def _now_s() -> float:
    return time.monotonic()


def disk_of(spec: SpawnSpec, settings: WorkerSettings, memory: RankMemory | None) -> RankDisk:
    """The disk tier of the rank with this spawn spec. Without one, removes the file that an earlier server has left."""
    name = memory_owner(spec.name).replace("/", "-")
    path = Path(settings.disk_cache_dir or spec.run_dir) / f"{name}.pages"
    if not settings.disk_cache_bytes:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return RankDisk(path, settings, memory)
