"""The leak watch sees what a process holds, and what it holds more than before."""

from __future__ import annotations

import mmap
import os
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

from ops.bench.leaks.held_resources import Allowance, files_under, growths, holding_of

NOTHING = Allowance(memory_bytes=4 << 20, descriptors=0, sockets=0, threads=0, shared=0)


def test_each_kind_of_leak_is_seen() -> None:
    before, over = holding_of(os.getpid()), threading.Event()
    with ExitStack() as stack:
        stack.enter_context(socket.socket())
        memory = stack.enter_context(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        memory.write(b"x" * len(memory))
        shared = os.memfd_create("leak")
        stack.callback(os.close, shared)
        os.ftruncate(shared, 4096)
        stack.enter_context(mmap.mmap(shared, 4096))
        thread = threading.Thread(target=over.wait)
        thread.start()
        grown = growths("me", before, holding_of(os.getpid()), NOTHING)
        over.set()
        thread.join()
    assert {growth.what for growth in grown} >= {"memory_bytes", "descriptors", "sockets", "threads", "shared"}
    assert growths("me", before, before, NOTHING) == []


def test_files_are_counted_with_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(100))
    assert files_under(tmp_path, tmp_path / "missing") == {"files": 2, "bytes": 100}
