"""A process that has large pages dies sooner, and nothing in its memory changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import hashlib, mmap, random, threading, time
from pathlib import Path
from gpu_workers.large_pages import collapse_private_memory

N_BYTES = 64 << 20
memory = mmap.mmap(-1, N_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
memory[:] = random.Random(1).randbytes(N_BYTES)
memory.madvise({advice})
before, is_over, n_written = hashlib.sha256(memory).digest(), False, 0

def write():  # the same content, again and again
    global n_written
    while not is_over:
        first = n_written * 4096 % N_BYTES
        memory[first : first + 16] = memory[first : first + 16]
        n_written += 1

writer = threading.Thread(target=write)
writer.start()
n_bytes = collapse_private_memory()
is_over = True
writer.join()
assert hashlib.sha256(memory).digest() == before and n_written
sparse = mmap.mmap(-1, N_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
sparse.madvise(mmap.MADV_NOHUGEPAGE)
for first in range(0, N_BYTES, 2 << 20):
    sparse[first] = 1
sparse.madvise(mmap.MADV_HUGEPAGE)
rss_kb = lambda: int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("RssAnon")).split()[1])
sparse_kb, _ = rss_kb(), collapse_private_memory()
print(n_bytes >> 20, rss_kb() - sparse_kb >> 10)
"""


def collapsed(advice: str) -> tuple[int, int]:
    """MiB that have large pages in a program with 64 MiB of content, and by how many MiB it has grown for a sparse mapping."""
    program = _PROGRAM.format(advice=advice)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    made, grown = run.stdout.split()
    return int(made), int(grown)


def test_content_stays_and_sparse_memory_stays_small() -> None:
    made, grown = collapsed("mmap.MADV_HUGEPAGE")
    if not made:
        pytest.skip("this kernel makes no large pages on demand")
    assert made >= 60
    assert grown < 16


def test_a_kernel_that_refuses_is_left_alone() -> None:
    made, _ = collapsed("mmap.MADV_NOHUGEPAGE")
    assert made < 60
