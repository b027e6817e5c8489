"""Updates and questions to a cache directory in another process, and bare round trips to the same process, by turns.

This process has the mailboxes of a supervisor, a scheduler and a gateway, as they are in a server.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import zmq

from actors.cache_directory.settings import DirectorySettings
from messages.caches.prefixes import FindPrefix, PagesDropped, PagesSealed, PrefixFound
from messages.ids import SUPERVISOR
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.arrays import uint64s
from messages.wire.message import Message

_DIRECTORY, _SCHEDULER, _GATEWAY = "cache_directory/0", "scheduler/0", "gateway/0"
_DEADLINE_S = 60.0
_WARM_UP = 50  # turns that are not counted
_PAGES = 64  # of each update and each question: a prompt of 1,024 tokens


@dataclass
class DirectoryTimes:
    """Seconds of each turn; `directory_cpu_s`: processor time of the directory for one question and two updates."""

    bare_s: list[float]
    answer_s: list[float]
    lag_s: list[float]
    directory_cpu_s: float


class DirectoryPair:
    """The directory's process, and the mailboxes that it talks to. To be used in one event loop."""

    def __init__(self, folder: Path, n_hashes: int) -> None:
        """folder: for sockets; n_hashes: pages that the directory knows."""
        self._folder, self._n_hashes = folder, n_hashes
        self._boxes = {name: ZmqMailbox(name, 1, self._endpoint(name)) for name in (SUPERVISOR, _SCHEDULER, _GATEWAY)}
        command = [sys.executable, "-m", "ops.bench.children.directory_child", self._spawn_spec(), self._endpoint("echo")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._bare = zmq.Context.instance().socket(zmq.DEALER)
        self._bare.connect(self._endpoint("echo"))
        self._unread: defaultdict[str, deque[Message]] = defaultdict(deque)
        self._number = self._query = 0
        self._hashes = np.random.default_rng(0).integers(1 << 32, 1 << 63, n_hashes + _PAGES, dtype=np.uint64)

    def _endpoint(self, name: str) -> str:
        return f"ipc://{self._folder / name.replace('/', '.')}"

    def _spawn_spec(self) -> str:
        spec = SpawnSpec(
            name=_DIRECTORY,
            incarnation=1,
            endpoint=self._endpoint(_DIRECTORY),
            supervisor_endpoint=self._endpoint(SUPERVISOR),
            supervisor_incarnation=1,
            supervisor_pid=os.getpid(),
            run_dir=str(self._folder),
            log_format="console",
            log_level="error",
            settings=msgspec.Raw(msgspec.json.encode(DirectorySettings())),
        )
        return msgspec.json.encode(spec).decode()

    async def begin(self) -> None:
        """Wait until the directory is ready, introduce scheduler and gateway, and send it all pages."""
        await self._mail(SUPERVISOR, lifecycle.Hello)
        supervisor = self._boxes[SUPERVISOR]
        supervisor.connect(_DIRECTORY, 1, self._endpoint(_DIRECTORY))
        peers = [lifecycle.Peer(name=name, incarnation=1, endpoint=self._endpoint(name)) for name in (_SCHEDULER, _GATEWAY)]
        supervisor.send(_DIRECTORY, lifecycle.Welcome(peers=peers))
        await self._mail(SUPERVISOR, lifecycle.Ready)
        for name in (_SCHEDULER, _GATEWAY):
            self._boxes[name].connect(_DIRECTORY, 1, self._endpoint(_DIRECTORY))
        self._update(PagesSealed, self._hashes[: self._n_hashes], snapshot=True)
        await self._ask(self._hashes[:_PAGES])

    async def measure(self, n: int) -> DirectoryTimes:
        """`n` turns of a bare round trip, a question whose answer is all of its pages, and two updates of as many pages.
        Ends the directory."""
        bare_s, answer_s = [], []
        newest, asked = self._hashes[self._n_hashes :], self._hashes[:_PAGES]
        for _ in range(n + _WARM_UP):
            bare_s.append(self._bare_round_trip(asked.tobytes()))
            began_s = time.perf_counter()
            found = await self._ask(asked)
            answer_s.append(time.perf_counter() - began_s)
            assert found.pages == [_PAGES], found
            for kind, pages in ((PagesSealed, [_PAGES]), (PagesDropped, [])):
                self._update(kind, newest)
                while (await self._ask(newest)).pages != pages:  # a question of the gateway may overtake the update
                    pass
        self._boxes[SUPERVISOR].send(_DIRECTORY, lifecycle.Stop())
        told = await asyncio.to_thread(self._last_words)
        n_turns = n + _WARM_UP
        return DirectoryTimes(bare_s[_WARM_UP:], answer_s[_WARM_UP:], told["lags_s"][-2 * n :], told["cpu_s"] / n_turns)

    async def close(self) -> None:
        """End what is left."""
        self._process.kill()
        self._process.wait()
        self._bare.close(0)
        for box in self._boxes.values():
            with suppress(Exception):
                await box.close()

    def _last_words(self) -> dict:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def _bare_round_trip(self, payload: bytes) -> float:
        began_s = time.perf_counter()
        self._bare.send_multipart([payload, b"question"])
        self._bare.recv_multipart()
        return time.perf_counter() - began_s

    def _update(self, kind: Callable[..., Message], hashes: np.ndarray, **more: bool) -> None:
        self._number += 1
        message = kind(number=self._number, hashes=uint64s(hashes), sent_s=time.monotonic(), **more)
        self._boxes[_SCHEDULER].send(_DIRECTORY, message)

    async def _ask(self, hashes: np.ndarray) -> PrefixFound:
        self._query += 1
        self._boxes[_GATEWAY].send(_DIRECTORY, FindPrefix(query=self._query, hashes=uint64s(hashes)))
        found = await self._mail(_GATEWAY, PrefixFound)
        assert isinstance(found, PrefixFound)
        return found

    async def _mail(self, name: str, kind: type[Message]) -> Message:
        """The next message of this kind; others are dropped."""
        async with asyncio.timeout(_DEADLINE_S):
            while True:
                while self._unread[name]:
                    if isinstance(message := self._unread[name].popleft(), kind):
                        return message
                self._unread[name].extend(delivery.message for delivery in await self._boxes[name].wait_mail())
