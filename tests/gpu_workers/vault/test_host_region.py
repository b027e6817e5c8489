"""Shared memory that a process may only read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

DEADLINE_S = 60.0

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
