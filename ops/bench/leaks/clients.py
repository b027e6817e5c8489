"""The clients of a leak watch, in processes of their own: one process cannot keep a server with four gateways busy."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING

from messages.client import AsyncClient
from ops.bench.leaks.requests import RequestMix

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import SynchronizedArray

_SEEDS_APART = 7_919


@dataclass(frozen=True)
class WatchedServer:
    """The server, as its clients see it. `endpoints`: the ZeroMQ sockets of its gateways."""

    port: int
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class ClientPhase:
    """What all clients do together: so many requests, or those until they are told to end, or until `until_s` on the monotonic
    clock. `faults_expected`: a death may cut an answer off."""

    n_requests: float = math.inf
    until_s: float = math.inf
    faults_expected: bool = False


@dataclass(frozen=True)
class ClientResult:
    """Requests that have ended, and that a death has cut, by kind."""

    done: Counter[str]
    failures: Counter[str]


@dataclass(frozen=True)
class _Share:
    """What one process does in one phase."""

    target: WatchedServer
    phase: ClientPhase
    index: int  # of the process
    at_once: int
    seed: int


_ended: Event  # in a client process: nobody begins another request
_counts: SynchronizedArray[int]  # in a client process: requests begun in this phase, one number for each process


def _begin(ended: Event, counts: SynchronizedArray[int]) -> None:
    global _ended, _counts
    _ended, _counts = ended, counts
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the watch ends its clients


def _run_share(share: _Share) -> ClientResult:
    """One process's part of a phase. Raises: WrongAnswer."""
    return asyncio.run(_requests_of(share))


async def _requests_of(share: _Share) -> ClientResult:
    endpoint = share.target.endpoints[share.index % len(share.target.endpoints)]
    async with AsyncClient(endpoint) as client:
        await client.models()  # a client that has never been connected gives up while its gateway restarts
        mix = RequestMix(share.target.port, client, share.seed, share.phase.faults_expected)

        def is_over() -> bool:
            _counts[share.index] = mix.n_begun
            too_late = time.monotonic() >= share.phase.until_s
            return too_late or mix.n_begun >= share.phase.n_requests or _ended.is_set()

        await mix.run_until(is_over, share.at_once)
    return ClientResult(mix.done, mix.failures)


class Clients:
    """Processes of clients. `clients` makes some. `done` and `failures`: in all phases together."""

    def __init__(
        self, pool: ProcessPoolExecutor, ended: Event, counts: SynchronizedArray[int], at_once: int, seed: int
    ) -> None:
        self._pool, self._ended, self._counts = pool, ended, counts
        self._at_once, self._seed = at_once, seed
        self._n_phases = 0
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    @property
    def n_done(self) -> int:
        """Requests that have ended."""
        return self.done.total()

    @property
    def n_begun(self) -> int:
        """Requests that have been sent in the present phase."""
        return sum(self._counts[:])

    @property
    def have_begun(self) -> bool:
        """Whether all processes are at work in the present phase."""
        return all(self._counts[:])

    async def run(self, target: WatchedServer, phase: ClientPhase) -> None:
        """One phase, to its end. Raises: WrongAnswer."""
        n = len(self._counts)
        self._ended.clear()
        self._counts[:] = [0] * n
        share = replace(phase, n_requests=phase.n_requests / n)
        self._n_phases += 1
        loop, seed = asyncio.get_running_loop(), self._seed + self._n_phases * _SEEDS_APART
        work = [
            loop.run_in_executor(self._pool, _run_share, _Share(target, share, index, -(-self._at_once // n), seed + index))
            for index in range(n)
        ]
        try:
            for one in asyncio.as_completed(work):
                result = await one
                self.done += result.done
                self.failures += result.failures
        finally:
            self.end()  # after an error of one process the others end too

    def end(self) -> None:
        """The present phase ends when the requests that run have ended."""
        self._ended.set()


@contextmanager
def clients(n_processes: int, at_once: int, seed: int) -> Iterator[Clients]:
    """So many processes, with `at_once` requests in all of them together."""
    context = multiprocessing.get_context("spawn")
    ended, counts = context.Event(), context.Array("q", n_processes)
    with ProcessPoolExecutor(n_processes, context, _begin, (ended, counts)) as pool:
        made = Clients(pool, ended, counts, at_once, seed)
        try:
            yield made
        finally:
            made.end()
