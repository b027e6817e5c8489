"""What becomes visible of a stream is written in that turn of the event loop, unless the answer's task has to do it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.http.answers import sse
from actors.gateway.http.answers.chunk_sender import ConnectionSender
from actors.gateway.http.answers.stream_bytes import as_chunk
from actors.gateway.http.answers.stream_events import StreamEvents
from actors.gateway.http.formats.openai_chunks import ChunkWriter
from actors.gateway.http.formats.openai_split import chunk_writer
from actors.gateway.requests.request import Request
from actors.gateway.text.channels import Splitting
from actors.gateway.text.reasoning_text import ReasoningMarks
from tests.support.gateway.asgi_exchange import LENGTH, MODEL, Exchange, exchange, request_of, show


class Cycle:
    """uvicorn's state of a request: what was written to its connection, whose client may be slow."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.flow = SimpleNamespace(write_paused=False, drain=self._drain)
        self.transport = SimpleNamespace(write=self.writes.append)
        self.disconnected, self.default_headers = False, []

    async def _drain(self) -> None:
        self.flow.write_paused = False


@pytest.fixture
def cycle(monkeypatch: pytest.MonkeyPatch) -> Cycle:
    one = Cycle()

    def sender(scope: Any, send: Any) -> ConnectionSender:
        return ConnectionSender(send, one, [], has_chunks=True)

    monkeypatch.setattr(sse, "chunk_sender", sender)
    return one


def n_events(write: bytes) -> int:
    return write.count(b"data: ")


async def begun(one: Exchange) -> None:
    """The first token goes with the headers, by the task."""
    show(one.request, 4)
    await one.wait_idle()


async def test_tokens_are_written_before_their_publication_returns(cycle: Cycle) -> None:
    request = request_of()
    async with exchange(request) as one:
        await begun(one)
        del cycle.writes[:]
        show(request, 5)
        assert [n_events(write) for write in cycle.writes] == [1]
        show(request, 6, 7, 8)
        assert [n_events(write) for write in cycle.writes] == [1, 3], "one write for all that is new"
        show(request, ended=LENGTH)
    assert b'"8 "' in cycle.writes[1]


async def test_a_slow_client_gets_its_tokens_from_the_task(cycle: Cycle) -> None:
    request = request_of()
    async with exchange(request) as one:
        await begun(one)
        del cycle.writes[:]
        cycle.flow.write_paused = True
        show(request, 5)
        assert not cycle.writes
        await one.wait_idle()
        assert [n_events(write) for write in cycle.writes] == [1]
        show(request, 6, ended=LENGTH)


async def test_many_tokens_at_once_are_left_to_the_task(cycle: Cycle) -> None:
    request = request_of()
    async with exchange(request) as one:
        await begun(one)
        del cycle.writes[:]
        show(request, *range(100))
        assert not cycle.writes, "other streams have their turn first"
        await one.wait_idle()
        assert sum(map(n_events, cycle.writes)) == 100
        show(request, ended=LENGTH)


async def test_an_error_ends_its_own_stream_alone(cycle: Cycle, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(writer: ChunkWriter, sequence: object, number: int) -> bytes:
        raise RuntimeError("broken")

    async def answered() -> None:
        async with exchange(request_of()) as one:
            await begun(one)
            monkeypatch.setattr(ChunkWriter, "token", broken)
            show(one.request, 5)  # whoever publishes is not hindered
            await one.wait_done()

    with pytest.raises(RuntimeError, match="broken"):
        await answered()


PLAIN = [request_of(n=n, is_resumable=is_resumable) for n in (1, 2) for is_resumable in (True, False)]
THOUGHT = Splitting(reasoning=ReasoningMarks("<", "2 ", is_open=True))
SPLIT = request_of(api="chat", is_resumable=True, splitting=THOUGHT)


@pytest.mark.parametrize("like", [*PLAIN, SPLIT])
@given(parts=st.lists(st.integers(0, 20), max_size=8))
def test_a_few_events_are_those_that_all_at_once_are(like: Request, parts: list[int]) -> None:
    spec = like.spec
    request = request_of(api=spec.api, n=spec.n, is_resumable=spec.is_resumable, splitting=spec.splitting)
    some, whole = [StreamEvents(request, chunk_writer(request, "model", MODEL)) for _ in range(2)]
    one_by_one = StreamEvents(request, chunk_writer(request, "model", MODEL))
    made, alone = some.take(), one_by_one.take()
    for part in parts:
        for sequence in request.sequences:
            for token in range(part):
                sequence.accept(len(sequence.ids), [token])
                sequence.publish(len(sequence.ids), False)
                alone += one_by_one.take()
        few = some.take_few()
        assert (few is None) == (part * spec.n > 16)
        made += some.take() if few is None else few
    assert made == whole.take() == alone
    assert all(as_chunk(event) for event in made)
