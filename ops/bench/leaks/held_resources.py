"""What the processes of a server hold: memory, descriptors, sockets, threads, shared memory; and its files. Read from /proc."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression

import pynvml

_SHARED = ("/memfd:", "/dev/shm/")


@dataclass(frozen=True)
class HeldResources:
    """What one process holds. `memory_bytes`: resident memory that belongs to no file; `shared`: mappings of shared memory;
    `rss_bytes`: all resident memory; `uss_bytes`: the part of it that no other process has."""

    memory_bytes: int
    descriptors: int
    sockets: int
    threads: int
    shared: int
    rss_bytes: int = 0
    uss_bytes: int = 0


@dataclass(frozen=True)
class Growth:
    """What one process, or all files together, hold more than before, where that is more than allowed."""

    name: str
    what: str
    before: int
    after: int


@dataclass(frozen=True)
class Allowance:
    """By how much a holding may grow. What is not named here is only reported."""

    memory_bytes: int
    descriptors: int
    sockets: int
    threads: int
    shared: int


def holding_of(pid: int) -> HeldResources:
    """What a process holds now. Raises: OSError when it has ended."""
    root = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines() if ":" in line)
    kib = sum(int(status[key].split()[0]) for key in ("RssAnon", "RssShmem"))
    links = []
    for entry in os.listdir(root / "fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor was closed meanwhile
            links.append(os.readlink(root / "fd" / entry))
    mappings = sum(any(mark in line for mark in _SHARED) for line in (root / "maps").read_text().splitlines())
    n_sockets = sum(link.startswith("socket:") for link in links)
    rss_bytes = int(status["VmRSS"].split()[0]) << 10
    return HeldResources(kib << 10, len(links), n_sockets, int(status["Threads"]), mappings, rss_bytes, _uss_bytes(root))


def _uss_bytes(root: Path) -> int:
    private = (line.split() for line in (root / "smaps_rollup").read_text().splitlines() if line.startswith("Private_"))
    return sum(int(fields[1]) << 10 for fields in private)


def growths(name: str, before: HeldResources, after: HeldResources, allowed: Allowance) -> list[Growth]:
    """Where a process holds more than before and what is allowed."""
    old, new, most = asdict(before), asdict(after), asdict(allowed)
    return [Growth(name, what, old[what], new[what]) for what in most if new[what] > old[what] + most[what]]


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line through these points (x, y) with the least squares; 0 for fewer than three of them."""
    if len(samples) < 3:
        return 0.0
    return linear_regression(*zip(*samples, strict=True)).slope


def gpu_bytes() -> int:
    """Memory in use on all GPUs of this machine, by whomever; 0 without NVIDIA's library."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    finally:
        pynvml.nvmlShutdown()


def descendants_of(pid: int) -> list[int]:
    """All processes below a process."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, open_pids = [], [pid]
    while open_pids:
        below = children.get(open_pids.pop(), [])
        found += below
        open_pids += below
    return found


def files_under(*folders: Path) -> Counter[str]:
    """Number of files and folders, and of their bytes, under these folders."""
    sizes: Counter[str] = Counter()
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                sizes["files"] += 1
                sizes["bytes"] += path.lstat().st_size if path.is_file() else 0
    return sizes
