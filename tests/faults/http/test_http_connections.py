"""Plain HTTP connections go on when their gateway is killed: each client reads the bytes that an undisturbed server sends.

The clients are bare sockets that never reconnect, so each answer comes over one TCP connection, whatever has died meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.run_dir import custodian_socket
from tests.support.answers.client_libraries import openai
from tests.support.http_answers import (
    PAGE,
    PAGE_FLAGS,
    HttpAnswer,
    answers,
    wait_another_event,
    wait_events,
    wait_held,
    wait_let_go,
    wait_spare,
)
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(600)
N_TOKENS = 200
_NOT_ACCEPTED = "02"  # the state of such a connection in /proc/net/unix
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01", "--set", "supervisor.frozen_s=2.0", *PAGE_FLAGS)


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with real_server(*WITH_SPARES, *FLAGS) as server:
        yield server


@pytest.fixture(scope="module")
def undisturbed(server: RealServer) -> dict[str, bytes]:
    """What each answer is without any fault, by the part of its name that all runs share."""
    return asyncio.run(run_with(server, "none"))


async def run_with(
    server: RealServer, run: str, faults: Callable[[list[HttpAnswer]], Awaitable[None]] | None = None
) -> dict[str, bytes]:
    """All answers, and the faults meanwhile; returns what each client has read."""
    await asyncio.to_thread(server.wait_serving)
    all_answers = answers(run, N_TOKENS)
    async with asyncio.TaskGroup() as group:  # a client that fails ends the others and the faults
        for one in all_answers:
            group.create_task(one.follow("127.0.0.1", server.port))
        if faults is not None:
            await faults(all_answers)
    assert not [one.name for one in all_answers if one.is_closed]
    return {one.name.removeprefix(run): one.plain() for one in all_answers}


async def test_answers_go_on_over_kills_of_the_gateway(server: RealServer, undisturbed: dict[str, bytes]) -> None:
    async def faults(running: list[HttpAnswer]) -> None:
        hit = 0
        for n_events in (3, 30, 60):
            await wait_events(running, n_events)
            hit = await asyncio.to_thread(server.kill, "gateway/0", signal.SIGKILL, hit)

    assert await run_with(server, "kill", faults) == undisturbed
    assert f"access-control-allow-origin: {PAGE}".encode() in undisturbed["-page"]


def test_forwarded_calls_go_on_over_kills_of_both_gateways(undisturbed: dict[str, bytes]) -> None:
    """Answers with keys: half of them are asked for at a gateway that forwards them to the other one."""
    with real_server(*WITH_SPARES, *FLAGS, "--gateways", "2") as two:

        async def faults(running: list[HttpAnswer]) -> None:
            await wait_events(running, 3)
            dead = await asyncio.to_thread(two.kill, "gateway/0")
            await asyncio.to_thread(two.kill, "gateway/1")
            await asyncio.to_thread(two.kill, "gateway/0", signal.SIGKILL, dead)

        assert asyncio.run(run_with(two, "both", faults)) == undisturbed


async def test_the_next_custodian_is_given_every_connection(server: RealServer, undisturbed: dict[str, bytes]) -> None:
    await wait_spare(server, "custodian/0")  # it must hold the connections before the answers end

    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 3)
        dead = await asyncio.to_thread(server.kill, "custodian/0")
        await wait_held(server, len(running), dead)
        await wait_events(running, 3)
        await asyncio.to_thread(server.kill, "gateway/0")

    assert await run_with(server, "hold", faults) == undisturbed


async def test_answers_go_on_if_the_gateway_dies_before_there_is_a_next_custodian(
    server: RealServer, undisturbed: dict[str, bytes]
) -> None:
    """What it sends to the socket of all custodians waits there. A supervisor that is stopped starts no custodian."""

    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 3)
        gateway, custodian = [await asyncio.to_thread(server.child, name) for name in ("gateway/0", "custodian/0")]
        os.kill(server.supervisor_pid, signal.SIGSTOP)
        os.kill(int(custodian.pid), signal.SIGKILL)
        await until(lambda: n_waiting(custodian_socket(server.run_dir)) == 1)
        await wait_another_event(running)  # the gateway has sent what it holds
        os.kill(int(gateway.pid), signal.SIGKILL)

    assert await run_with(server, "next", faults) == undisturbed


def n_waiting(path: str) -> int:
    """How many connections to this unix socket nobody has accepted."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.split()[5] == _NOT_ACCEPTED for line in lines if line.endswith(f" {path}.new"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_answers_go_on_if_the_custodian_is_frozen_meanwhile(
    server: RealServer, undisturbed: dict[str, bytes], how: signal.Signals
) -> None:
    """The supervisor lets the custodian continue: if it were replaced, the connections of that gateway would end."""

    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 10)
        frozen = await asyncio.to_thread(server.kill, "custodian/0", signal.SIGSTOP)
        dead = await asyncio.to_thread(server.kill, "gateway/0", how)
        await asyncio.to_thread(server.wait_new_incarnation, "gateway/0", dead)
        assert (await asyncio.to_thread(server.child, "custodian/0")).incarnation == frozen, server.log()

    assert await run_with(server, f"fr{how:02d}", faults) == undisturbed


async def test_answers_go_on_if_the_custodian_dies_while_the_gateway_is_frozen(
    server: RealServer, undisturbed: dict[str, bytes]
) -> None:
    """The gateway alone has its connections then, so it is let continue."""

    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 10)
        gateway, custodian = [await asyncio.to_thread(server.child, name) for name in ("gateway/0", "custodian/0")]
        os.kill(int(gateway.pid), signal.SIGSTOP)
        os.kill(int(custodian.pid), signal.SIGKILL)
        await wait_held(server, len(running), int(custodian.incarnation))
        assert (await asyncio.to_thread(server.child, "gateway/0")).incarnation == gateway.incarnation, server.log()

    assert await run_with(server, "both", faults) == undisturbed


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_answers_go_on_if_gateway_and_custodian_are_frozen_when_the_supervisor_ends(
    server: RealServer, undisturbed: dict[str, bytes], how: signal.Signals
) -> None:
    """The next supervisor finds both stopped. It lets the custodian continue before it replaces the gateway."""

    async def faults(running: list[HttpAnswer]) -> None:
        await wait_events(running, 10)
        frozen = await asyncio.to_thread(server.kill, "custodian/0", signal.SIGSTOP)
        dead = await asyncio.to_thread(server.kill, "gateway/0", signal.SIGSTOP)
        supervisor = await asyncio.to_thread(server.kill_supervisor, how)
        await asyncio.to_thread(server.wait_supervisor, supervisor)
        await asyncio.to_thread(server.wait_new_incarnation, "gateway/0", dead)
        assert (await asyncio.to_thread(server.child, "custodian/0")).incarnation == frozen, server.log()

    assert await run_with(server, f"su{how:02d}", faults) == undisturbed


async def test_a_connection_that_had_another_answer_meanwhile_is_closed(server: RealServer) -> None:
    """The custodian knows the stream alone. Nobody can tell whether the refusal after it was sent to its end."""
    await asyncio.to_thread(server.wait_serving)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(DEADLINE_S):
        for body, end in ((b'{"prompt": [1], "max_tokens": 3, "stream": true}', b"\r\n0\r\n\r\n"), (b'{"prompt": 1}', b"}}")):
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            assert (await reader.readuntil(end)).split()[1] == (b"200" if b"stream" in body else b"400")
        dead = await asyncio.to_thread(server.kill, "gateway/0")
        assert not await reader.read()
    writer.close()
    await asyncio.to_thread(server.wait_new_incarnation, "gateway/0", dead)
    assert "not the one that had begun" not in server.log()


async def test_openai_and_httpx_clients_notice_nothing(server: RealServer) -> None:
    await asyncio.to_thread(server.wait_serving)
    prompt, ids, lines = [5, 6, 7], [], []
    body = {"prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S) as client,
        httpx.AsyncClient(timeout=DEADLINE_S) as http,
    ):
        stream = await client.completions.create(
            model="hash-chain", prompt=prompt, max_tokens=N_TOKENS, temperature=0, stream=True
        )

        async def read_httpx() -> None:
            async with http.stream("POST", f"{server.url}/v1/completions", json=body) as reply:
                lines.extend([line[6:] async for line in reply.aiter_lines() if line.startswith("data: {")])

        other = asyncio.ensure_future(read_httpx())
        async for chunk in stream:
            ids += [int(word) for word in chunk.choices[0].text.split()]
            if len(ids) == 20:
                await asyncio.to_thread(server.kill, "gateway/0")
        await other
    expected = hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
    assert ids == expected
    texts = [json.loads(line)["choices"][0]["text"] for line in lines]
    assert [int(word) for word in "".join(texts).split()] == expected


async def test_a_client_that_has_left_meanwhile_is_noticed(server: RealServer) -> None:
    """Its request does not run on without a reader, and the custodian lets go of its connection."""
    await asyncio.to_thread(server.wait_serving)
    held = HttpAnswer("leaves", "/v1/completions", {"prompt": [1], "max_tokens": 4000, "temperature": 0, "stream": True})
    work = asyncio.ensure_future(held.follow("127.0.0.1", server.port))
    await wait_events([held], 5)
    dead = await asyncio.to_thread(server.kill, "gateway/0")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await asyncio.to_thread(server.wait_new_incarnation, "gateway/0", dead)
    await wait_let_go(server)
