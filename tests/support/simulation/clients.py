"""Clients of a simulated server. Each asks for one request, asks again after a death, and keeps what it has seen."""

from __future__ import annotations

import asyncio
import random
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.order import Ended
from actors.gateway.requests.reader import Piece, Reader
from actors.gateway.requests.refusals import Refusal
from messages.generation import Sampling, Terms
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.simulation.processes import SimulatedProcess
from tests.support.simulation.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable

_DELAY_S = (0.0001, 0.003)
_AGAIN_S = (0.01, 0.2)
_QUIET_S = 5.0
_RETRYABLE = ("overloaded", "unavailable", "starting", "draining", "journal_unavailable")


@dataclass(frozen=True)
class Wish:
    """What one client asks for. `leaves_after`: it leaves after so many tokens, -1: never."""

    request: str
    gateway: str
    prompt: list[int]
    max_tokens: int
    seed: int
    leaves_after: int = -1
    asks_after_s: float = 0.0  # when it asks, after the beginning

    @property
    def expected(self) -> list[int]:
        """The tokens of the hash chain."""
        return oracle(self.prompt, self.max_tokens, self.seed)

    def new_request(self) -> NewRequest:
        """The request as the gateway gets it, the same each time."""
        sampling = Sampling(temperature=1.0, seed=self.seed) if self.seed else Sampling(temperature=0.0)
        return NewRequest(
            request=self.request,
            api="front",
            sampling=sampling,
            terms=Terms(max_tokens=self.max_tokens),
            ids=[self.prompt],
            is_resumable=True,
            digest=self.request,
        )


class _Connection:
    """One connection of a client to one life of a gateway: items arrive in order, a little later."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, context: Context) -> None:
        self._loop, self._chance, self._context = loop, chance, context
        self._last_s = 0.0
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.is_open = True

    def send(self, item: Any) -> None:
        """Called in the gateway's process, or when it dies."""
        self._last_s = max(self._loop.time() + self._chance.uniform(*_DELAY_S), self._last_s + 1e-7)
        self._loop.call_at(self._last_s, self.queue.put_nowait, item, context=self._context)


_CLOSED = object()


@dataclass
class Client:
    """One client. `problems`: what it has seen and must never see."""

    wish: Wish
    loop: VirtualLoop
    chance: random.Random
    find_gateway: Callable[[str], SimulatedProcess | None]
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    ended: Ended | None = None
    problems: list[str] = field(default_factory=list)
    n_connections: int = 0
    has_left: bool = False

    async def run(self) -> None:
        """Ask until the answer is complete."""
        await asyncio.sleep(self.wish.asks_after_s)
        while self.ended is None and not self.problems and not self.has_left:
            process = self.find_gateway(self.wish.gateway)
            if process is not None:
                await self._ask(process)
            await asyncio.sleep(self.chance.uniform(*_AGAIN_S))
        self._check_whole()

    async def _ask(self, process: SimulatedProcess) -> None:
        self.n_connections += 1
        connection = _Connection(self.loop, self.chance, copy_context())
        process.on_death.append(lambda: connection.send(_CLOSED))
        work = _serve(process.actor, self.wish.new_request(), len(self.tokens), connection)
        task = process.context.run(self.loop.create_task, work)
        while (item := await connection.queue.get()) is not _CLOSED and not self.has_left:
            if isinstance(item, Refusal):
                if item.code not in _RETRYABLE:
                    self.problems.append(f"refused: {item.code}: {item.detail}")
                return
            if item.ended is not None and item.ended.code in _RETRYABLE and not self.tokens:
                return  # withdrawn before it was accepted: ask again
            self._take(item)
            if self.ended is not None:
                return
        if self.has_left:
            process.context.run(self.loop.call_soon, task.cancel)

    def _take(self, piece: Piece) -> None:
        if piece.first != len(self.tokens):
            self.problems.append(f"token {piece.first} after {len(self.tokens)} tokens: a gap or a repeat")
        self.tokens += piece.ids
        self.text += piece.text + piece.tail
        self.ended = piece.ended
        if self.tokens != self.wish.expected[: len(self.tokens)]:
            self.problems.append(f"wrong token within the first {len(self.tokens)}")
        self.has_left = 0 <= self.wish.leaves_after <= len(self.tokens)

    def _check_whole(self) -> None:
        if self.ended is None:
            return
        if self.ended.reason != "length":
            self.problems.append(f"ended as {self.ended.reason}: {self.ended.code} {self.ended.detail}")
        elif self.tokens != self.wish.expected or self.text != ids_text(self.tokens):
            self.problems.append("the answer is not the oracle's")


async def _serve(gateway: Any, new: NewRequest, have: int, connection: _Connection) -> None:
    """The part of an API that runs in the gateway: admit the request and send its pieces. See zeromq/server.py."""
    try:
        request = await gateway.admission.admit(new)
    except Refusal as refusal:
        connection.send(refusal)
        return
    reader = Reader(request, have)
    try:
        while not reader.is_done:
            if await reader.wait_update(_QUIET_S):
                for piece in reader.take():
                    connection.send(piece)
    finally:
        reader.close()
        gateway.desk.reader_left(request)
