"""Statistics and metrics of the whole server: asks the supervisor, and falls back to its last answer after a second.

Several scrapers share an answer of the supervisor that is not older than a second: its figures are as old as heartbeats anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from actors.gateway.vllm_metrics import VllmNames
from messages.exposition import LineStarts, render_exposition
from messages.lifecycle.tree import StatusReport, StatusWanted
from messages.metrics import take_snapshot
from messages.wire.message import Message

_WAIT_S = 1.0
SHARED_S = 1.0  # for how long readers of figures share an answer


class TreeStatus:
    """Sends one StatusWanted for all readers that wait at the same time."""

    def __init__(self, endpoint: str, send_to_supervisor: Callable[[Message], None]) -> None:
        self._endpoint, self._send = endpoint, send_to_supervisor
        self._report: StatusReport | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.n_reports = 0  # that have come
        self._came_s = 0.0  # when the last one did
        self._starts: LineStarts = {}

    def on_report(self, report: StatusReport) -> None:
        """Keep the supervisor's report and wake every waiting reader."""
        self._report = report
        self.n_reports += 1
        self._came_s = asyncio.get_running_loop().time()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_report(self, oldest_s: float = 0.0) -> StatusReport | None:
        """Returns a new report, or the last one if none comes within a second; None if there has been none yet. A report that
        came less than `oldest_s` ago is returned at once."""
        loop = asyncio.get_running_loop()
        if self._report is not None and loop.time() - self._came_s < oldest_s:
            return self._report
        is_first = not self._waiters
        waiter = loop.create_future()
        self._waiters.append(waiter)
        if is_first:
            self._send(StatusWanted(reply_to=self._endpoint, metrics=True))
        timer = loop.call_later(_WAIT_S, lambda: waiter.done() or waiter.set_result(None))
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return self._report

    def render(self, own_name: str, own_registry: CollectorRegistry, vllm: VllmNames | None = None) -> bytes:
        """The Prometheus text of all actors: this gateway's metrics as of now, beside what the supervisor alone has of it,
        and every other actor's as of its last heartbeat. `vllm`: adds them under vLLM's names; None: nothing does."""
        children = self._report.children if self._report is not None else []
        others = [(child.name, child.metrics) for child in children if child.name != own_name]
        own = take_snapshot(own_registry)
        names = {family.name for family in own}
        told = [family for child in children if child.name == own_name for family in child.metrics if family.name not in names]
        actors = [(own_name, [*own, *told]), *others]
        shown = actors if vllm is None else [(name, vllm.added(name, found)) for name, found in actors]
        return render_exposition(shown, self._starts)
