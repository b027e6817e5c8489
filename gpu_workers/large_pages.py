"""Large pages for the memory of a process that others wait for when it dies.

A kernel frees the memory of a dead process page by page, and only then is its death proven. 0.5 GB in pages of 4 KiB took 250
to 344 ms on a busy core, in pages of 2 MiB 41 to 100 (docs/reliability.md). So a process that has loaded a model asks for large
pages (MADV_COLLAPSE, Linux 6.1), piece by piece, because threads that need memory meanwhile wait for a piece.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LARGE_PAGE_BYTES = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE: large pages at once, whatever the system's default
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_N_PAGES = LARGE_PAGE_BYTES // _PAGE_BYTES  # in a large page
_LEAST_USED = _N_PAGES // 4  # pieces with fewer pages stay small: a large page takes memory for all of them
_BEGIN_S = 2.0  # after loading, when the process has begun to serve
_PAUSE_S = 0.02  # between two pieces, each of which takes some milliseconds of a core from those that serve
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def collapse(address: int) -> bool:
    """Make one large page of the small ones from this address on, which begins one. The content stays, and other threads may
    write meanwhile. False if the kernel cannot, or does not know how."""
    return _libc.madvise(address, LARGE_PAGE_BYTES, _COLLAPSE) == 0


def collapse_private_memory(pause_s: float = 0.0) -> int:
    """Make large pages of all private memory of this process that is used enough. Returns their bytes. It sleeps for `pause_s`
    after each."""
    n_bytes, used = 0, (ctypes.c_ubyte * _N_PAGES)()
    for address in _pieces(Path("/proc/self/maps").read_text()):
        if _libc.mincore(address, LARGE_PAGE_BYTES, used) == 0 and sum(used) >= _LEAST_USED and collapse(address):
            n_bytes += LARGE_PAGE_BYTES
            time.sleep(pause_s)
    return n_bytes


def collapse_soon() -> None:
    """Make large pages of the private memory of this process, a little later and in a thread that ends with it. Returns at
    once."""
    threading.Thread(target=_collapse_later, name="large pages", daemon=True).start()


def _collapse_later() -> None:
    with suppress(OSError):  # a sandbox may not let it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    time.sleep(_BEGIN_S)
    collapse_private_memory(_PAUSE_S)


def _pieces(maps: str) -> Iterator[int]:
    """The addresses of the pieces of private writable memory that belong to no file, as /proc/self/maps has them."""
    for line in maps.splitlines():
        span, mode, _, _, _, *name = line.split(maxsplit=5)
        if mode == "rw-p" and (not name or name[0] == "[heap]"):
            first, end = (int(part, 16) for part in span.split("-"))
            yield from range(-(-first // LARGE_PAGE_BYTES) * LARGE_PAGE_BYTES, end - LARGE_PAGE_BYTES + 1, LARGE_PAGE_BYTES)
