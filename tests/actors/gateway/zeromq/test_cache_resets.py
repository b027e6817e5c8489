"""Resets of caches by the client library: at the Unix socket its user is the operator, over TCP a key says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zmq

from messages.client import AsyncClient, Client
from messages.errors import InvalidRequest
from tests.support.answers.directory import add_directory
from tests.support.gateway.fake_scheduler import text_ids
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways

ASKED = {"prompt": "the same again", "max_tokens": 4, "temperature": 0}


def tcp_endpoint_of(r: Rig) -> str:
    """The address that the system has chosen for the socket that was bound last."""
    assert r.gateway.servers.zeromq is not None
    return r.gateway.servers.zeromq._socket._socket.getsockopt_string(zmq.LAST_ENDPOINT)


async def test_the_user_of_the_server_needs_no_key() -> None:
    with TemporaryDirectory(prefix="tg-") as folder:
        endpoint = f"ipc://{folder}/zeromq-0"
        async with rig(zeromq_endpoint=endpoint, answer_cache="exact", caller_header="x-key") as r:
            await add_directory(r, Path(folder))
            async with AsyncClient(endpoint) as client, r.http() as http:
                await http.post("/v1/completions", json=ASKED, headers={"x-key": "me"})
                assert (await client.reset_cache(caller="you")).answers == 0
                done = await client.reset_cache(caller="me", prompt="the same", older_than_s=0.0, model="hash-chain")
                assert (done.pages, done.answers) == (7, 1)
                asked = r.scheduler().forgotten[-1]
                assert (asked.tokens.tolist(), len(asked.scope or b"")) == (text_ids("the same"), 8)
                with pytest.raises(InvalidRequest) as error:
                    await client.reset_cache(colour="red")
                assert error.value.field == "colour"
                with pytest.raises(InvalidRequest) as error:
                    await client.reset_cache(model="another")
                assert error.value.field == "model"

            def talk() -> int:
                with Client(endpoint) as one:
                    return one.reset_cache(messages=[{"role": "user", "content": "hi"}]).pages

            assert await asyncio.to_thread(talk) == 7


async def test_over_tcp_the_key_is_needed() -> None:
    with TemporaryDirectory(prefix="tg-") as folder:
        settings: dict[str, Any] = {
            "zeromq_endpoint": f"ipc://{folder}/zeromq-0",
            "zeromq_tcp_endpoint": "tcp://127.0.0.1:*",
            "operator_key": "secret",
        }
        async with rig(**settings) as r, AsyncClient(tcp_endpoint_of(r)) as client:
            for key in ("", "another"):
                with pytest.raises(InvalidRequest) as error:
                    await client.reset_cache(operator_key=key)
                assert error.value.field == "x-operator-key"
            assert (await client.reset_cache(operator_key="secret")).pages == 7


async def test_the_answers_of_every_gateway_are_forgotten(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"answer_cache": "exact", "operator_key": "secret"}
    async with two_gateways(**settings) as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        scheduler.is_automatic = True
        directory = await add_directory(r, tmp_path)
        kept = second.gateway.manager.equals.kept
        await other.post("/v1/completions", json=ASKED)
        await r.cluster.wait_until(lambda: directory.statistics()["shared_answers"] == 1)
        answer = await http.post("/v1/cache/reset", json={}, headers={"X-Operator-Key": "secret"})
        assert answer.json() == {"answers": 1, "pages": 7}
        assert (len(kept), len(r.manager.equals.kept or ()), directory.statistics()["shared_answers"]) == (0, 0, 0)
