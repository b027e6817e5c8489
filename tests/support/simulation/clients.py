"""Clients of a simulated server. Each asks for one request, asks again after a death, and keeps what it has seen."""

from __future__ import annotations

import asyncio
import random
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.gateway.admission.new_request import NewRequest
from actors.gateway.requests.order import Ended, Order
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
    n: int = 1  # sequences
    stop_at: int = -1  # the token with this number in the first sequence is a stop token, -1: none
    leaves_after: int = -1
    asks_after_s: float = 0.0  # when it asks, after the beginning

    def __post_init__(self) -> None:
        whole = [oracle(self.prompt, self.max_tokens, self._seed_of(index)) for index in range(self.n)]
        stops = [] if self.stop_at < 0 else [whole[0][self.stop_at]]
        self.__dict__["stop_tokens"] = stops
        self.__dict__["expected"] = [_cut(tokens, stops) for tokens in whole]

    stop_tokens: list[int] = field(init=False)
    expected: list[list[int]] = field(init=False)  # the tokens of the hash chain, for each sequence

    def _seed_of(self, index: int) -> int:
        return self.new_order().sampling_of(index).seed if self.seed else 0

    def new_order(self) -> Order:
        """Only for the seeds of its sequences."""
        return Order(
            request="", api="front", created_s=0.0, prompts=[b""], sampling=self._sampling, terms=Terms(max_tokens=1), n=self.n
        )

    @property
    def _sampling(self) -> Sampling:
        return Sampling(temperature=1.0, seed=self.seed) if self.seed else Sampling(temperature=0.0)

    def new_request(self) -> NewRequest:
        """The request as the gateway gets it, the same each time."""
        return NewRequest(
            request=self.request,
            api="front",
            sampling=self._sampling,
            terms=Terms(max_tokens=self.max_tokens, stop_tokens=self.stop_tokens),
            ids=[self.prompt],
            n=self.n,
            is_resumable=True,
            digest=self.request,
        )


def _cut(tokens: list[int], stops: list[int]) -> list[int]:
    """The tokens up to the first stop token, which is the last one."""
    return tokens[: 1 + next((i for i, token in enumerate(tokens) if token in stops), len(tokens))]


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
class _Answer:
    """What a client has of one sequence."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    ended: Ended | None = None


@dataclass
class Client:
    """One client. `problems`: what it has seen and must never see."""

    wish: Wish
    loop: VirtualLoop
    chance: random.Random
    find_gateway: Callable[[str], SimulatedProcess | None]
    problems: list[str] = field(default_factory=list)
    n_connections: int = 0
    has_left: bool = False

    def __post_init__(self) -> None:
        self.answers = [_Answer() for _ in range(self.wish.n)]

    @property
    def is_done(self) -> bool:
        """Every sequence has ended."""
        return all(answer.ended is not None for answer in self.answers)

    async def run(self) -> None:
        """Ask until the answer is complete."""
        await asyncio.sleep(self.wish.asks_after_s)
        while not self.is_done and not self.problems and not self.has_left:
            process = self.find_gateway(self.wish.gateway)
            if process is not None:
                await self._ask(process)
            await asyncio.sleep(self.chance.uniform(*_AGAIN_S))
        if self.is_done:
            for answer, expected in zip(self.answers, self.wish.expected, strict=True):
                self._check_whole(answer, expected)

    async def _ask(self, process: SimulatedProcess) -> None:
        self.n_connections += 1
        connection = _Connection(self.loop, self.chance, copy_context())
        process.on_death.append(lambda: connection.send(_CLOSED))
        have = [len(answer.tokens) for answer in self.answers]
        work = _serve(process.actor, self.wish.new_request(), have, connection)
        task = process.context.run(self.loop.create_task, work)
        while (item := await connection.queue.get()) is not _CLOSED and not self.has_left:
            if isinstance(item, Refusal):
                if item.code not in _RETRYABLE:
                    self.problems.append(f"refused: {item.code}: {item.detail}")
                return
            answer = self.answers[item.sequence.index]
            if item.ended is not None and item.ended.code in _RETRYABLE and not answer.tokens:
                return  # withdrawn before it was accepted: ask again
            self._take(item, answer, self.wish.expected[item.sequence.index])
            if self.is_done:
                return
        if self.has_left:
            process.context.run(self.loop.call_soon, task.cancel)

    def _take(self, piece: Piece, answer: _Answer, expected: list[int]) -> None:
        if answer.ended is not None:
            if (
                piece.ids
                or piece.ended is None
                or (piece.ended.reason, piece.ended.code) != (answer.ended.reason, answer.ended.code)
            ):
                self.problems.append("more tokens, or another ending, after the ending")  # n_cached may differ: computed again
            return
        if piece.first != len(answer.tokens):
            self.problems.append(f"token {piece.first} after {len(answer.tokens)} tokens: a gap or a repeat")
        answer.tokens += piece.ids
        answer.text += piece.text + piece.tail
        answer.ended = piece.ended
        if answer.tokens != expected[: len(answer.tokens)]:
            self.problems.append(f"wrong token within the first {len(answer.tokens)}")
        self.has_left = 0 <= self.wish.leaves_after <= len(answer.tokens)

    def _check_whole(self, answer: _Answer, expected: list[int]) -> None:
        assert answer.ended is not None
        shown = [token for token in answer.tokens if token not in self.wish.stop_tokens]
        reason = "stop" if len(shown) < len(expected) else "length"
        if answer.ended.reason != reason:
            self.problems.append(f"expected {reason}, got {answer.ended.reason}: {answer.ended.code} {answer.ended.detail}")
        elif answer.tokens != expected or answer.text != ids_text(shown):
            self.problems.append("the answer is not the oracle's")


async def _serve(gateway: Any, new: NewRequest, have: list[int], connection: _Connection) -> None:
    """The part of an API that runs in the gateway: admit the request and send its pieces. See zeromq/server.py."""
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
                for piece in reader.take():
                    connection.send(piece)
    finally:
        reader.close()
        gateway.desk.reader_left(request)
