"""An answer over ASGI without server: a request manager, a client that can leave, and a request whose tokens a test shows."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from starlette.types import ASGIApp, Message

from actors.gateway.custody.hold import ANSWER_HOLD, AnswerHold
from actors.gateway.http.answers.sse import EventStream, WholeAnswer
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.format import PING as PING
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.lasting_waits import LastingWaits
from actors.gateway.lifecycle.finished import FinishedRequests
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api, Ended, RequestSpec
from actors.gateway.text.models.hash_chain_text import HashChainText
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms

DEADLINE_S = 60.0
NEVER_S = 1000.0
MODEL = HashChainText()
LENGTH = Ended(reason="length")


def _later(delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, callback)


class FakeManager:
    """The part of the request manager that answers use."""

    def __init__(self) -> None:
        retained: Any = SimpleNamespace(read=lambda request_id, now_s: None)
        self.finished = FinishedRequests(retained, NEVER_S)
        self.lasting = LastingWaits(_later, time.monotonic)
        self.left: list[Request] = []

    def ping(self, request: Request) -> None:
        request.show_ping()
        request.wake()

    def reader_left(self, request: Request, *, may_return: bool = False) -> None:
        self.left.append(request)


class NotedHold(AnswerHold):
    """The hold of the answer's connection. `runs`: what it was told of runs, with `n_sent`, how much was sent before."""

    def __init__(self, n_sent: Callable[[], int]) -> None:
        self._n_sent = n_sent
        self.runs: list[tuple[int, int]] = []

    def begin(self, request: str, start: int = -1, run: int = 0) -> None:
        self.note_run(run)

    def note_run(self, run: int) -> None:
        self.runs.append((run, self._n_sent()))

    @property
    def was_accepted(self) -> bool:
        return False

    def begin_computing(self, request: str, http_request: Callable[[], bytes]) -> None:
        """Nobody goes on with it."""


class Exchange:
    """One ASGI call: what the application has sent, and a client that can disconnect or break."""

    def __init__(self, manager: FakeManager, request: Request, answer: ASGIApp) -> None:
        self.manager, self.request = manager, request
        self.sent: list[Message] = []
        self.error: Exception | None = None  # raised by the next send
        self._disconnected = asyncio.Event()
        self._changed = asyncio.Event()
        self.hold = NotedHold(lambda: len(self.sent))
        scope = {"type": "http", "method": "POST", "extensions": {ANSWER_HOLD: self.hold}}
        self.task = asyncio.ensure_future(answer(scope, self._receive, self._send))
        self.task.add_done_callback(lambda _: self._changed.set())

    async def _receive(self) -> Message:
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(message)
        self._changed.set()

    def disconnect(self) -> None:
        self._disconnected.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_done(self) -> None:
        await asyncio.wait_for(asyncio.shield(self.task), DEADLINE_S)

    async def wait_idle(self) -> None:
        """Until the application waits for tokens, and has sent everything that it can."""
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    @property
    def events(self) -> list[dict]:
        """The JSON of all events but [DONE]."""
        lines = [line.removeprefix(b"data: ") for line in b"".join(self.bodies).split(b"\n")]
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    @property
    def texts(self) -> list[str]:
        return [choice["text"] for event in self.events for choice in event["choices"] if choice["text"]]

    @property
    def is_delivered(self) -> bool:
        return self.manager.finished.undelivered.n_pending(0.0) == 0


def request_of(
    *, api: Api = "completion", n: int = 1, is_recorded: bool = True, is_taken: bool = True, **fields: Any
) -> Request:
    """A request whose tokens a test shows. `fields`: further ones of its order."""
    spec = RequestSpec(
        request="r",
        api=api,
        created_s=0.0,
        prompts=[np.array([1, 2], "<i4").tobytes()],
        sampling=Sampling(),
        terms=Terms(max_tokens=100),
        n=n,
        **fields,
    )
    request = Request(1, spec, MODEL.detokenizer, 0.0)
    request.is_recorded = is_recorded
    for sequence in request.sequences:
        sequence.is_taken = is_taken
    return request


def show(request: Request, *ids: int, index: int = 0, ended: Ended | None = None) -> None:
    """As the step publisher does: tokens and an ending of one sequence become visible."""
    sequence = request.sequences[index]
    sequence.accept(len(sequence.ids), ids)
    if ended is not None:
        sequence.end(ended)
        request.n_open -= 1
    sequence.publish(len(sequence.ids), ended is not None)
    request.wake()


@asynccontextmanager
async def exchange(
    request: Request, *, ping_s: float = NEVER_S, longest_s: float = NEVER_S, stream: bool = True, start: int = 0
) -> AsyncIterator[Exchange]:
    """An answer that runs; afterwards it has ended, its reader is closed and the request manager knows that it left."""
    manager = FakeManager()
    manager.finished.undelivered.add(request.spec.request, 100, 0.0)
    if stream:
        writer = ChunkWriter(request, "model", MODEL)
        answer: ASGIApp = EventStream(manager, request, StreamEvents(request, writer, start), longest_s, ping_s)  # pyright: ignore[reportArgumentType]
    else:
        answer = WholeAnswer(manager, request, lambda: [b'{"whole": true}'], longest_s)  # pyright: ignore[reportArgumentType]
    one = Exchange(manager, request, answer)
    try:
        yield one
        await one.wait_done()
    finally:
        one.task.cancel()
    assert request.watchers == []
    assert manager.left == [request]
