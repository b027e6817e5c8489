"""A pulse: servers of the hash chain work at their speed only while this test process runs, so that no stream is over before a
test that was kept from running has done to it what it wants.

It is a file that a test touches while it follows streams. When it has not been touched for a second, every step takes 0.1 s
(`worker.hash_chain_pulse`). Without a file, which is while no streams are followed, steps have their usual time.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

_BEAT_S = 0.1


class Pulse:
    """The pulse of one test process. `path`: the file, for the servers' settings."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="tg-pulse-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "pulse"
        self._n_followers, self._is_held = 0, False
        self._task: asyncio.Task[None] | None = None

    @property
    def flags(self) -> tuple[str, str]:
        """What `supervisor start` needs to read it."""
        return "--set", f"worker.hash_chain_pulse={self.path}"

    def beat(self) -> None:
        """Steps have their usual time for a second from now on, and are slow after it."""
        if not self._is_held:
            self.path.touch()

    def end(self) -> None:
        """Steps have their usual time, whatever becomes of this process."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Steps are slow."""
        self._is_held = True
        self.path.touch()
        os.utime(self.path, (0.0, 0.0))
        try:
            yield
        finally:
            self._is_held = False

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Steps have their usual time as long as the present event loop runs. It ends with the last one who is in here."""
        self._n_followers += 1
        if self._n_followers == 1:
            self._task = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            self._n_followers -= 1
            if not self._n_followers and self._task is not None:
                self._task.cancel()
                self.end()

    async def _beat(self) -> None:
        while True:
            self.beat()
            await asyncio.sleep(_BEAT_S)


PULSE = Pulse()
