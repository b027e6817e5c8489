"""What the processes of a server hold: memory, descriptors, sockets, threads, shared memory; and its files. Read from /proc."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

_SHARED = ("/memfd:", "/dev/shm/")


@dataclass(frozen=True)
class HeldResources:
    """What one process holds. `memory_bytes`: resident memory that belongs to no file; `shared`: mappings of shared memory."""

    memory_bytes: int
    descriptors: int
    sockets: int
    threads: int
    shared: int


@dataclass(frozen=True)
class Growth:
    """What one process, or all files together, hold more than before, where that is more than allowed."""

    name: str
    what: str
    before: int
    after: int


@dataclass(frozen=True)
class Allowance:
    """By how much a holding may grow."""

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
    return HeldResources(kib << 10, len(links), n_sockets, int(status["Threads"]), mappings)


def growths(name: str, before: HeldResources, after: HeldResources, allowed: Allowance) -> list[Growth]:
    """Where a process holds more than before and what is allowed."""
    old, new, most = asdict(before), asdict(after), asdict(allowed)
    return [Growth(name, what, old[what], new[what]) for what in old if new[what] > old[what] + most[what]]


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
