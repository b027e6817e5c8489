"""The calls of ZeroMQ clients that take more than one turn of the event loop: a task for each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from actors.gateway.requests.refusals import Refusal


class CallTasks:
    """The tasks that run now. `refuse` is called with the identity, the id and the refusal of a call that has failed."""

    def __init__(self, refuse: Callable[[bytes, str, Refusal], None]) -> None:
        self._refuse = refuse
        self.running: set[asyncio.Task[None]] = set()

    def spawn(self, identity: bytes, request: str, work: Callable[[], Awaitable[None]]) -> None:
        """Begin the work for one call. `work` is called in its task: one that is cancelled before it begins leaves nothing."""
        task = asyncio.get_running_loop().create_task(self._run(identity, request, work))
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self.running:
            task.cancel()

    async def _run(self, identity: bytes, request: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Refusal as refusal:
            self._refuse(identity, request, refusal)
        except Exception as error:
            structlog.get_logger().exception("ZeroMQ call failed", request=request)
            self._refuse(identity, request, Refusal("internal", f"{type(error).__name__}: {error}"[:1000]))
