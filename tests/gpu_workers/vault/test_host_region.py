"""Shared memory that a process may only read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from actors.pages.seal_table import create_table
from gpu_workers.vault.host_region import HostRegion

DEADLINE_S = 60.0


def test_memory_with_large_pages_is_shared_as_any_other() -> None:
    n_bytes = (4 << 20) + 100
    region, other = HostRegion(n_bytes), HostRegion(n_bytes)
    descriptor = region.make()
    region.share(descriptor)
    region.buffer[3 << 20] = 9
    region.use_large_pages()
    region.buffer[n_bytes - 1] = 7
    other.share(descriptor, is_read_only=True)
    assert bytes(other.buffer[:5]) == bytes(5)
    assert (other.buffer[3 << 20], other.buffer[n_bytes - 1]) == (9, 7)
    os.close(descriptor)


WRITER = """
import ctypes, sys
from gpu_workers.vault.host_region import HostRegion
region = HostRegion(8192)
region.share(int(sys.argv[1]), is_read_only=True)
assert region.buffer[5] == 7
region.buffer[5] = 8
"""


def test_a_stray_write_ends_its_process_and_changes_nothing() -> None:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 8192)
    os.pwrite(descriptor, b"\x07" * 8192, 0)
    ended = subprocess.run(
        [sys.executable, "-c", WRITER, str(descriptor)], pass_fds=[descriptor], timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == -signal.SIGSEGV
    assert os.pread(descriptor, 8192, 0) == b"\x07" * 8192
    os.close(descriptor)


def test_memory_that_is_finished_can_be_read_and_never_written_again() -> None:
    region, other = HostRegion(8192), HostRegion(8192)
    descriptor = region.make()
    region.share(descriptor)
    region.buffer[5] = 7
    region.finish(descriptor)
    other.share(descriptor, is_read_only=True)
    assert (region.buffer[5], other.buffer[5]) == (7, 7)
    with pytest.raises(PermissionError):
        HostRegion(8192).share(descriptor)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    os.close(descriptor)


def test_nobody_can_change_the_size_of_shared_memory() -> None:
    made = [HostRegion(8192).make(), create_table(1, 4)[0]]
    for descriptor in made:
        size = os.fstat(descriptor).st_size
        for other in (0, size + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, other)
        os.close(descriptor)
