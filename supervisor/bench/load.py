"""Driving load: a closed loop (N clients, each asks again as soon as it has its answer) or an open one (arrivals by the clock).

In an open loop a latency begins when the request should have been sent, so a server that makes its clients wait cannot hide it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from supervisor.bench.http.completion_events import MeasuredAnswer
from supervisor.bench.http.stream import ConnectionPool, Target
from supervisor.bench.prompts import Job

MakeBody = Callable[[Job], tuple[str, dict]]  # (path, JSON body)


@dataclass
class LoadLimit:
    """When to send no more: after a number of requests, after a time, or whichever comes first."""

    requests: int | None = None
    duration_s: float | None = None
    sent: int = 0
    began_s: float = field(default_factory=time.perf_counter)

    def next_allowed(self) -> bool:
        """May one more be sent? Counts it."""
        if self.requests is not None and self.sent >= self.requests:
            return False
        if self.duration_s is not None and time.perf_counter() - self.began_s >= self.duration_s:
            return False
        self.sent += 1
        return True

    def share_done(self, ended: int) -> float:
        """0 to 1, for a progress bar."""
        shares = [0.0]
        if self.requests:
            shares.append(ended / self.requests)
        if self.duration_s:
            shares.append((time.perf_counter() - self.began_s) / self.duration_s)
        return min(max(shares), 1.0)


@dataclass
class Run:
    """What a load run gave."""

    answers: list[MeasuredAnswer] = field(default_factory=list)
    began_s: float = 0.0
    ended_s: float = 0.0
    client_cpu_s: float = 0.0

    @property
    def wall_s(self) -> float:
        """From the first request to the end of the last."""
        return self.ended_s - self.began_s


class Load:
    """Requests against one target."""

    def __init__(
        self,
        target: Target,
        jobs: Iterator[Job],
        make_body: MakeBody,
        keep_text: bool = False,
        pool: ConnectionPool | None = None,
    ) -> None:
        """`pool`: connections to the target that outlive this load; None: it has its own."""
        self._target, self._jobs, self._make_body, self._keep_text = target, jobs, make_body, keep_text
        self._pool = pool or ConnectionPool(target)
        self.run = Run()
        self.running = 0

    async def closed_loop(self, concurrency: int, stop: LoadLimit) -> Run:
        """`concurrency` clients side by side until `stop`."""

        async def client() -> None:
            while stop.next_allowed():
                await self._one(time.perf_counter())

        return await self._measure(asyncio.gather(*(client() for _ in range(concurrency))))

    async def open_loop(self, arrivals: Iterator[float], stop: LoadLimit, limit: int) -> Run:
        """One request at each arrival time (seconds from now). One that comes while `limit` are unanswered is an error."""

        async def send_all() -> None:
            begin_s = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for arrival_s in arrivals:
                    delay_s = begin_s + arrival_s - time.perf_counter()
                    if delay_s > 0:
                        await asyncio.sleep(delay_s)
                    if not stop.next_allowed():
                        return
                    if self.running >= limit:
                        self.run.answers.append(MeasuredAnswer(scheduled_s=begin_s + arrival_s, error="client_limit"))
                    else:
                        group.create_task(self._one(begin_s + arrival_s))
                        await asyncio.sleep(0)

        return await self._measure(send_all())

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    async def _measure(self, work: asyncio.Future | object) -> Run:
        self.run = Run(began_s=time.perf_counter())
        cpu_s = time.process_time()
        await work  # pyright: ignore[reportGeneralTypeIssues]
        self.run.ended_s = time.perf_counter()
        self.run.client_cpu_s = time.process_time() - cpu_s
        return self.run

    async def _one(self, scheduled_s: float) -> None:
        path, body = self._make_body(next(self._jobs))
        answer = MeasuredAnswer(scheduled_s=scheduled_s, text=[] if self._keep_text else None)
        self.running += 1
        try:
            await self._pool.ask(self._target.request_bytes(path, body), answer)
        finally:
            self.running -= 1
        if not answer.error and not answer.n_tokens and not answer.text_s:
            answer.fail("empty", "the stream ended without a token")
        self.run.answers.append(answer)
