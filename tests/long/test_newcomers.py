"""curl, the openai client and a browser's EventSource notice nothing of the death of any actor but a pause."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
import openai
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
_LONGEST_RETRY_S = 2.0
N_TOKENS, PROMPT = 400, [5, 6, 7]
RIGHT = "".join(f"{token} " for token in hash_chain_tokens(PROMPT, N_TOKENS, 0, VOCABULARY))
BODY = {"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0, "model": "hash-chain"}
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")
EVERYBODY = ("worker/0.0", "scheduler/0", "gateway/0", "cache_directory/0", "speculation/0", "custodian/0")
ABOVE = ("supervisor", "parent")

Begun = Callable[[], None]
Newcomer = Callable[[RealServer, Begun], Awaitable[str]]


@dataclass
class EventSource:
    """A browser's EventSource, as the HTML standard describes it: it connects again by itself, with the id of the last event.

    Reads the events of one URL until the server answers 204. `data`: of each event; `n_connections`: that it has made.
    """

    http: httpx.AsyncClient
    url: str
    data: list[str] = field(default_factory=list)
    n_connections: int = 0
    last_id: str = ""
    retry_s: float = _LONGEST_RETRY_S

    async def read(self) -> None:
        """Read to the end over as many connections as it takes."""
        while await self._connect():
            await asyncio.sleep(self.retry_s)

    async def _connect(self) -> bool:
        """One connection; returns whether another one follows."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        try:
            async with self.http.stream("GET", self.url, headers=headers) as answer:
                if answer.status_code == 204:
                    return False
                assert answer.status_code == 200
                assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
                self.n_connections += 1
                fields: dict[str, str] = {}
                async for line in answer.aiter_lines():
                    fields = self._dispatch(fields) if not line else self._add(fields, line)
        except httpx.TransportError:
            pass  # an event without its empty line is discarded
        return True

    def _add(self, fields: dict[str, str], line: str) -> dict[str, str]:
        name, _, value = line.partition(":")
        if name == "retry" and value.strip().isdecimal():
            self.retry_s = min(int(value) / 1e3, _LONGEST_RETRY_S)
        return {**fields, name: value.removeprefix(" ")} if name else fields  # a line without a name is a comment

    def _dispatch(self, fields: dict[str, str]) -> dict[str, str]:
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            self.data.append(fields["data"])
        return {}


def text_of(lines: list[str]) -> str:
    """The text of the events whose data these are; the last must be [DONE]."""
    assert lines[-1] == "[DONE]"
    return "".join(choice["text"] for line in lines[:-1] for choice in json.loads(line)["choices"])


async def with_curl(server: RealServer, begun: Begun) -> str:
    """curl without retries: one connection."""
    body = json.dumps({**BODY, "stream": True})
    head = ("-H", "content-type: application/json")
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sSN", "--fail", *head, "-d", body, f"{server.url}/v1/completions", stdout=asyncio.subprocess.PIPE
    )
    assert curl.stdout is not None
    lines: list[str] = []
    async for line in curl.stdout:
        if line.startswith(b"data: "):
            lines.append(line[6:].decode().strip())
            begun()
    assert await curl.wait() == 0
    return text_of(lines)


async def with_openai(server: RealServer, begun: Begun) -> str:
    """The asynchronous openai client without retries."""
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=DEADLINE_S) as client:
        text = ""
        async for chunk in await client.completions.create(**BODY, stream=True):  # pyright: ignore[reportCallIssue, reportArgumentType]
            text += chunk.choices[0].text
            begun()
        return text


async def with_openai_in_a_thread(server: RealServer, begun: Begun) -> str:
    """The synchronous openai client without retries, streamed."""
    loop = asyncio.get_running_loop()

    def read() -> str:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=DEADLINE_S) as client:
            text = ""
            for chunk in client.completions.create(**BODY, stream=True):  # pyright: ignore[reportCallIssue, reportArgumentType]
                text += chunk.choices[0].text
                loop.call_soon_threadsafe(begun)
            return text

    return await asyncio.to_thread(read)


async def with_event_source(server: RealServer, begun: Begun) -> str:
    """An EventSource on the stream of a request that a page has posted."""
    key = f"page {id(begun)}"
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S) as http:
        body = {**BODY, "stream": True}
        async with http.stream("POST", "/v1/completions", json=body, headers={"Idempotency-Key": key}) as posted:
            assert posted.status_code == 200  # the page reads no more of it
        source = EventSource(http, f"/v1/streams/{key}")
        reading = asyncio.ensure_future(source.read())
        while not source.data and not reading.done():
            await asyncio.sleep(0.005)
        begun()
        await reading
        return text_of(source.data)


NEWCOMERS = (with_curl, with_openai, with_openai_in_a_thread, with_event_source)


async def kill_meanwhile(server: RealServer, names: tuple[str, ...], clients: tuple[Newcomer, ...]) -> None:
    """Start the clients, kill these processes when each client has begun, and compare all answers."""
    has_begun = [asyncio.Event() for _ in clients]
    work = [asyncio.ensure_future(one(server, event.set)) for one, event in zip(clients, has_begun, strict=True)]
    async with asyncio.timeout(DEADLINE_S):
        for event in has_begun:
            await event.wait()
        for name in names:
            if name == "supervisor":
                server.kill_supervisor()
            elif name == "parent":
                await asyncio.to_thread(server.wait_parent, await asyncio.to_thread(server.kill_parent))
            else:
                await asyncio.to_thread(server.kill, name)
        assert await asyncio.gather(*work) == [RIGHT] * len(clients)


def test_newcomers_notice_no_death() -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    with real_server(*WITH_SPARES, *FLAGS) as server:
        for name in (*EVERYBODY, *ABOVE):
            asyncio.run(kill_meanwhile(server, (name,), NEWCOMERS))
            server.wait_serving()


def test_an_event_source_comes_back_by_itself_when_its_connection_is_lost() -> None:
    """Connections that nobody holds end with their gateway: EventSource and its Last-Event-ID need no code of the page."""
    with real_server(*WITH_SPARES, *FLAGS, "--set", "hold_connections=false") as server:
        asyncio.run(kill_meanwhile(server, ("gateway/0",), (with_event_source,)))
