"""The official `openai` client, unchanged, over a real socket: sync, async, streaming, errors; and clients that hang up."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from tests.support.answers.client_libraries import openai
from tests.support.gateway.fake_scheduler import ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S, until

HELLO: Any = [{"role": "user", "content": "hi"}]
ANSWER = ids_text(oracle(text_ids("user: hi\nassistant: "), 6))


def address_of(r: Rig) -> str:
    host, port = r.address
    return f"http://{host}:{port}/v1"


async def test_sync_client() -> None:
    async with rig(with_socket=True) as r:
        url = address_of(r)

        def talk() -> None:
            with openai.OpenAI(base_url=url, api_key="none", timeout=DEADLINE_S) as client:
                assert [m.id for m in client.models.list()] == ["hash-chain"]
                whole = client.chat.completions.create(model="hash-chain", messages=HELLO, max_tokens=6, temperature=0)
                assert whole.choices[0].message.content == ANSWER
                assert whole.usage is not None
                assert whole.usage.completion_tokens == 6
                events = client.chat.completions.create(
                    model="hash-chain", messages=HELLO, max_completion_tokens=6, temperature=0, stream=True
                )
                assert "".join(e.choices[0].delta.content or "" for e in events) == ANSWER
                plain = client.completions.create(model="hash-chain", prompt=[1, 2], max_tokens=3, temperature=0, logprobs=2)
                assert plain.choices[0].text == ids_text(oracle([1, 2], 3))
                assert plain.choices[0].logprobs is not None
                with pytest.raises(openai.NotFoundError, match="other"):
                    client.completions.create(model="other", prompt="x")
                with pytest.raises(openai.BadRequestError) as caught:
                    client.chat.completions.create(model="hash-chain", messages=HELLO, temperature=-1)
                assert caught.value.param == "temperature"

        await asyncio.to_thread(talk)


async def test_async_client_with_64_streams_at_once() -> None:
    async with rig(with_socket=True) as r, openai.AsyncOpenAI(base_url=address_of(r), api_key="none") as client:

        async def one(number: int) -> None:
            events = await client.completions.create(
                model="hash-chain",
                prompt=[number, 7],
                max_tokens=40,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
            text, usage = "", None
            async for event in events:
                text += "".join(choice.text for choice in event.choices)
                usage = event.usage or usage
            assert text == ids_text(oracle([number, 7], 40))
            assert usage is not None
            assert usage.completion_tokens == 40

        await asyncio.gather(*(one(number) for number in range(64)))
        assert r.gateway.manager.gate.n_active == 0


async def test_an_accepted_stream_that_fails_is_an_error_not_an_end() -> None:
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with openai.AsyncOpenAI(base_url=address_of(r), api_key="none", timeout=DEADLINE_S) as client:
            events = asyncio.ensure_future(
                client.completions.create(model="hash-chain", prompt=[1], max_tokens=9, temperature=0, stream=True)
            )
            await until(lambda: scheduler.running)
            scheduler.step()
            stream = await events
            assert (await anext(stream)).choices[0].text == ids_text(oracle([1], 1))
            scheduler.fail(next(iter(scheduler.running)), "on fire")
            with pytest.raises(openai.APIError, match="on fire"):
                await anext(stream)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_frees_its_sequence(stream: bool) -> None:
    async with rig(with_scheduler=False, with_socket=True) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
            body = {"prompt": [1], "max_tokens": 100, "temperature": 0, "stream": stream}
            asking = asyncio.ensure_future(http.post(address_of(r) + "/completions", json=body))
            await until(lambda: scheduler.running)
            scheduler.step(2)
            await until(lambda: scheduler.acked == 1)
            asking.cancel()
            await until(lambda: scheduler.cancels)
            assert scheduler.cancels[0].why == "client_left"
            await until(lambda: not r.manager.gate.n_active)


async def test_garbage_on_the_http_socket_harms_nobody() -> None:
    async with rig(with_socket=True) as r:
        for words in (b"\x00\xff" * 500, b"GET", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\nhalf"):
            reader, writer = await asyncio.open_connection(*r.address)
            writer.write(words)
            await writer.drain()
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
            async with asyncio.timeout(DEADLINE_S):
                await reader.read()
            writer.close()
        async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
            answer = await http.post(address_of(r) + "/generate", json={"tokens": [1], "max_tokens": 1, "temperature": 0})
            assert answer.json()["tokens"] == oracle([1], 1)
