"""The ids of answers to requests with an Idempotency-Key: in the form of each API, and good for asking again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.http.request_identity import request_of
from actors.gateway.other_gateways.owners import Owners
from tests.support.answers.client_libraries import openai
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.waiting import DEADLINE_S

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0}
RESPONSE: dict[str, Any] = {"input": "hi", "max_output_tokens": 4, "temperature": 0}
APIS = [
    ("/v1/chat/completions", CHAT, "chatcmpl-"),
    ("/v1/completions", {"prompt": [1, 2], "max_tokens": 4}, "cmpl-"),
    ("/v1/responses", RESPONSE, "resp_"),
    ("/v1/messages", CHAT, "msg_"),
]
OWNERS = Owners(1, ["zero", "one"])


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


@pytest.mark.parametrize(("path", "body", "form"), APIS)
async def test_an_id_has_the_form_of_its_api_with_a_key_too(path: str, body: dict[str, Any], form: str) -> None:
    async with rig() as r, r.http() as http:
        first = await http.post(path, json=body, headers=keyed("my key"))
        assert first.json()["id"] == f"{form}key-my key"
        assert (await http.post(path, json=body, headers=keyed(first.json()["id"]))).json() == first.json(), "the same key"
        streamed = await http.post(path, json={**body, "stream": True}, headers=keyed(f"{form}mine"))
        assert f'"id":"{form}mine"' in streamed.text, "a key that has the form stays as it is"
        for known in ("my key", f"{form}key-my key"):
            assert (await http.get(f"/v1/streams/{known}")).status_code == 200
        assert len(r.scheduler().submits) == 2


async def test_a_request_is_read_again_and_gone_on_with_by_the_id_in_its_answer(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path / "journal")) as r:
        async with r.http() as http:
            made = (await http.post("/v1/responses", json=RESPONSE, headers=keyed("mine"))).json()
        await r.kill_gateway()
        await r.start_gateway(2)
        async with r.http() as http:
            for known in ("mine", made["id"]):
                assert (await http.get(f"/v1/responses/{known}")).json() == made
                goes_on = await http.post("/v1/responses", json={**RESPONSE, "previous_response_id": known})
                assert goes_on.status_code == 200
            again = await http.get(f"/v1/responses/{made['id']}", params={"stream": "true"})
            assert '"id":"resp_key-mine"' in again.text
            assert (await http.delete(f"/v1/responses/{made['id']}")).json()["id"] == made["id"]


@pytest.mark.parametrize("owner", [0, 1])
async def test_every_gateway_knows_the_id_in_the_answer(owner: int) -> None:
    key = next(key for n in range(1000) if bool(OWNERS.socket_of(key := f"k{n}")) == (owner == 0))
    async with two_gateways() as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        call = asyncio.ensure_future(http.post("/v1/responses", json=RESPONSE, headers=keyed(key)))
        await r.cluster.wait_until(lambda: bool(scheduler.running))
        scheduler.step(4)
        made = (await call).json()
        assert made["id"] == f"resp_key-{key}"
        for gateway in (http, other):
            assert (await gateway.get(f"/v1/responses/{made['id']}")).json() == made
            assert (await gateway.get(f"/v1/streams/{made['id']}")).status_code == 200


async def test_the_openai_client_goes_on_with_a_response_that_has_a_key() -> None:
    async with rig(with_socket=True) as r:
        host, port = r.address
        async with openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="any", timeout=DEADLINE_S) as client:
            first = await client.responses.create(model="hash-chain", **RESPONSE, extra_headers=keyed("k"))
            assert first.id.startswith("resp_")
            assert (await client.responses.retrieve(first.id)).id == first.id
            second = await client.responses.create(model="hash-chain", **RESPONSE, previous_response_id=first.id)
            assert second.previous_response_id == first.id


@pytest.mark.parametrize(
    ("shown", "request_id"),
    [
        ("chatcmpl-key-a", "a"),
        ("resp_key-cmpl-key-b", "b"),
        ("resp_b45a945b13471c7020d9e140", "resp_b45a945b13471c7020d9e140"),
        ("gen-key-a", "gen-key-a"),
        ("key-a", "key-a"),
        ("resp_key-", "resp_key-"),
    ],
)
def test_the_id_of_the_request_follows_from_the_one_in_its_answer(shown: str, request_id: str) -> None:
    assert request_of(shown) == request_id
    assert request_of(request_id) == request_id


@pytest.mark.parametrize("owner", [0, 1])
async def test_every_gateway_says_of_a_response_that_it_is_not_over(owner: int) -> None:
    """One that is being computed is not unknown, whichever gateway computes it: its client comes again."""
    key = next(key for key in map(str, range(99)) if bool(OWNERS.socket_of(key)) != bool(owner))
    async with two_gateways() as (r, second, _), r.http() as http, Rig.http(second) as other:
        made = (await http.post("/v1/responses", json={**RESPONSE, "background": True}, headers=keyed(key))).json()
        for gateway in (http, other):
            refused = await gateway.post("/v1/responses", json={**RESPONSE, "previous_response_id": made["id"]})
            assert refused.status_code == 400
            assert "previous_response_id: expected a response that is over" in refused.json()["error"]["message"]
