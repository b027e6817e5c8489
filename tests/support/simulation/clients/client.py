"""Clients of a simulated server. Each asks for one request, asks again after a death, and notes what it sees in the history."""

from __future__ import annotations

import asyncio
import random
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.reader import Delta, Reader
from actors.gateway.requests.refusals import Refusal
from tests.support.simulation.clients.history import History, Kind, Seen
from tests.support.simulation.clients.planned_requests import PlannedRequest
from tests.support.simulation.processes import SimulatedProcess
from tests.support.simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

_DELAY_S = (0.0001, 0.003)
_AGAIN_S = (0.01, 0.2)
_QUIET_S = 5.0
RETRYABLE = ("overloaded", "unavailable", "starting", "draining", "journal_unavailable")


class Client:
    """One client: asks until its answer is complete, or until it leaves or a promise is broken."""

    def __init__(self, planned: PlannedRequest, history: History, chance: random.Random) -> None:
        self.planned, self.chance, self.history = planned, chance, history
        self.has_left = False
        history.expect(planned)

    @property
    def is_done(self) -> bool:
        """Every sequence has ended."""
        return all(self.history.answer(self.planned.request, index).ended is not None for index in range(self.planned.n))

    async def run(self) -> None:
        """Ask until the answer is complete."""
        await asyncio.sleep(self.planned.asks_after_s)
        while not self.is_done and not self.history.is_broken(self.planned.request) and not self.has_left:
            await self.ask()
            await asyncio.sleep(self.chance.uniform(*_AGAIN_S))

    async def ask(self) -> None:
        """Ask once, and read the answer to its end or to the end of the connection."""
        raise NotImplementedError

    def note(self, kind: Kind, index: int = 0, **what: Any) -> None:
        """Note what the client has seen."""
        self.history.note(Seen(self.planned.request, kind, index, **what))
        self.has_left |= 0 <= self.planned.leaves_after <= self.n_tokens

    @property
    def n_tokens(self) -> int:
        """How many tokens of the first sequence the client has."""
        answer = self.history.answer(self.planned.request)
        return len(answer.ids) or answer.text.count(" ")


class _Connection:
    """One connection of a client to one life of a gateway: items arrive in order, a little later."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, context: Context) -> None:
        self._loop, self._chance, self._context = loop, chance, context
        self._last_s = 0.0
        self.queue: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, item: Any) -> None:
        """Called in the gateway's process, or when it dies."""
        self._last_s = max(self._loop.time() + self._chance.uniform(*_DELAY_S), self._last_s + 1e-7)
        self._loop.call_at(self._last_s, self.queue.put_nowait, item, context=self._context)


_CLOSED = object()


class InProcessClient(Client):
    """Asks as the ZeroMQ server does: in the gateway's process, with the numbers of the tokens that it has."""

    def __init__(
        self,
        planned: PlannedRequest,
        history: History,
        chance: random.Random,
        loop: VirtualLoop,
        find_gateway: Callable[[str], SimulatedProcess | None],
    ) -> None:
        super().__init__(planned, history, chance)
        self._loop, self._find_gateway = loop, find_gateway
        self._asked: tuple[SimulatedProcess, _Connection] | None = None

    def leave(self) -> None:
        """Cancel the request now, whatever has come of it, and leave."""
        self.has_left = True
        if self._asked is not None:
            process, connection = self._asked
            process.context.run(self._loop.call_soon, _cancel, process.actor, self.planned.request)
            connection.queue.put_nowait(_CLOSED)

    async def ask(self) -> None:
        process = self._find_gateway(self.planned.gateway)
        if process is None:
            return
        connection = _Connection(self._loop, self.chance, copy_context())
        self._asked = process, connection
        process.on_death.append(lambda: connection.send(_CLOSED))
        have = [len(self.history.answer(self.planned.request, index).ids) for index in range(self.planned.n)]
        work = _serve(process.actor, self.planned.new_request(), have, connection)
        task = process.context.run(self._loop.create_task, work)
        while (item := await connection.queue.get()) is not _CLOSED and not self.has_left:
            if isinstance(item, Refusal):
                if item.code not in RETRYABLE:
                    self.note(Kind.REFUSED, detail=f"{item.code}: {item.detail}")
                return
            answer = self.history.answer(self.planned.request, item.sequence.index)
            if item.ended is not None and item.ended.code in RETRYABLE and not answer.ids:
                return  # withdrawn before it was accepted: ask again
            self._take(item)
            if self.is_done or self.history.is_broken(self.planned.request):
                return
        if self.has_left:
            process.context.run(self._loop.call_soon, task.cancel)

    def _take(self, delta: Delta) -> None:
        index = delta.sequence.index
        if delta.ids or delta.text or delta.tail:
            self.note(Kind.TOKENS, index, first=delta.first, ids=delta.ids, text=delta.text + delta.tail)
        if delta.ended is not None:
            self.note(Kind.ENDED, index, reason=str(delta.ended.reason), detail=delta.ended.code)


def _cancel(gateway: Any, request_id: str) -> None:
    if (request := gateway.manager.find(request_id)) is not None:
        gateway.manager.cancel(request)


async def _serve(gateway: Any, new: NewRequest, have: list[int], connection: _Connection) -> None:
    """The part of an API that runs in the gateway: admit the request and send its deltas. See zeromq/server.py."""
    try:
        request = await gateway.admission.admit(new)
    except Refusal as refusal:
        connection.send(refusal)
        return
    reader = Reader(request)
    reader.cursors = have
    try:
        while not reader.is_done:
            if await reader.wait_update(_QUIET_S):
                for delta in reader.take():
                    connection.send(delta)
    finally:
        reader.close()
        gateway.manager.reader_left(request)
