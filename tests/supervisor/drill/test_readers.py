"""Streams that are read by other processes are what the drill sees of them."""

from __future__ import annotations

import asyncio

import pytest

from supervisor.drill.readers import _StreamReaders, following, n_readers_for
from supervisor.drill.streams import DrillStream, StreamRequest, follow
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
EVENT = 'data: {"choices":[{"text":"%s","finish_reason":%s}]}\n\n'


class OneByOne:
    """A server whose answers have two texts: the second one comes when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + (EVENT % ("a", "null")).encode())
        await self.may_end.wait()
        writer.write((EVENT % ("b", '"length"')).encode() + b"data: [DONE]\n\n")
        writer.close()


def request(port: int) -> StreamRequest:
    return StreamRequest(f"http://127.0.0.1:{port}", "m", 1, 2, DEADLINE_S, ignores_end=True, api_key="")


def test_few_streams_or_few_cores_need_no_process() -> None:
    assert [n_readers_for(n, 32) for n in (1, 48, 49, 240, 5000)] == [1, 1, 2, 5, 8]
    assert n_readers_for(240, 2) == 1
    with following(1) as mine:
        assert mine is follow


async def test_a_stream_is_seen_while_it_runs_and_at_its_end() -> None:
    sent = OneByOne()
    server = await asyncio.start_server(sent.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    streams = [DrillStream(f"p{number}") for number in range(5)]
    with following(2) as read:
        work = [asyncio.ensure_future(read(request(port), stream)) for stream in streams]
        await until(lambda: all(stream.pieces for stream in streams))
        assert not any(one.done() for one in work)
        sent.may_end.set()
        await asyncio.wait_for(asyncio.gather(*work), DEADLINE_S)
        late = DrillStream("late")
        server.close()
        await server.wait_closed()
        await asyncio.wait_for(read(request(port), late), DEADLINE_S)
    assert [(stream.text, stream.is_complete, stream.error) for stream in streams] == [("ab", True, "")] * 5
    assert all(len(stream.arrivals_s) == 2 for stream in streams)
    assert late.error.startswith("not connected")


async def test_the_death_of_a_reader_is_no_fault_of_the_server() -> None:
    server = await asyncio.start_server(OneByOne().answer, "127.0.0.1", 0)
    stream = DrillStream("p")
    readers = _StreamReaders(1)
    with readers as read:
        work = asyncio.ensure_future(read(request(server.sockets[0].getsockname()[1]), stream))
        await until(lambda: bool(stream.pieces))
        readers._readers[0]._process.kill()
        with pytest.raises(ConnectionError, match="reads streams has died"):
            await asyncio.wait_for(work, DEADLINE_S)
    server.close()
