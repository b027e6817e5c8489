"""Clients of a gateway with API keys, by HTTP and by ZeroMQ: who is let in, and that nobody reads what is another tenant's."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from structlog.testing import capture_logs

from messages import public
from messages.access.api_key import Role, new_key
from messages.access.key_file import change_keys
from messages.client import AsyncClient
from messages.errors import InvalidRequest
from tests.support.answers.directory import add_directory
from tests.support.gateway.gateway_rig import Rig, rig, two_gateways
from tests.support.gateway.held_text import HeldText
from tests.support.gateway.whole_server import whole_server
from tests.support.gateway.zmq_clients import zmq_rig

BODY: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
LONG = [(i * 7) % 900 for i in range(100)]
COMPLETIONS, RESPONSES = "/v1/completions", "/v1/responses"


class Tenants:
    """A file with keys of two tenants, the second of which has an admin's."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "api-keys.json"
        self.mine, mine = new_key("me", Role.USER, 1.0)
        self.yours, yours = new_key("you", Role.ADMIN, 1.0)
        change_keys(self.file, lambda keys: [mine, yours])
        self.me, self.you = ({"Authorization": f"Bearer {key}"} for key in (self.mine, self.yours))
        self.settings: dict[str, Any] = {"keys_file": str(self.file)}


@pytest.fixture
def tenants(tmp_path: Path) -> Tenants:
    return Tenants(tmp_path)


async def test_every_call_but_those_of_probes_needs_a_key(tenants: Tenants) -> None:
    async with rig(**tenants.settings) as r, r.http() as http:
        for path in ("/health", "/livez", "/readyz", "/v1/health"):
            assert (await http.get(path)).status_code != 401, path
        for path in ("/v1/models", "/metrics", "/v1/metrics", "/version", "/v1/streams/x"):
            assert (await http.get(path)).status_code == 401, path
        for path in (COMPLETIONS, "/v1/chat/completions", RESPONSES, "/v1/messages", "/api/chat", "/v1/generate", "/tokenize"):
            assert (await http.post(path, json={})).status_code == 401, path
        answer = await http.post(COMPLETIONS, json=BODY)
        assert (answer.json()["error"]["code"], answer.headers["www-authenticate"]) == ("invalid_api_key", "Bearer")
        assert (await http.post("/v1/messages", json={})).json()["error"]["type"] == "authentication_error"
        assert (await http.post(COMPLETIONS, json=BODY, headers=tenants.me)).status_code == 200


async def test_an_authorization_without_bearer_is_told(tenants: Tenants) -> None:
    told = {"": "none", "Bearer": "none"} | dict.fromkeys(
        (tenants.mine, "Basic bWU6eA==", "Bearer:x"), "a value without Bearer"
    )
    async with rig(**tenants.settings) as r, r.http() as http:
        for given, got in told.items():
            answer = await http.get("/v1/models", headers={"Authorization": given})
            message = answer.json()["error"]["message"]
            assert message == f"Authorization: expected Bearer and an API key of this server, got {got}"
        both = {"Authorization": "Basic of-a-proxy", "x-api-key": tenants.mine}
        assert (await http.get("/v1/models", headers=both)).status_code == 200


@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "api-key"])
async def test_a_key_may_come_in_the_headers_of_other_clients(tenants: Tenants, header: str) -> None:
    value = f"bearer {tenants.mine}" if header == "Authorization" else tenants.mine
    async with rig(**tenants.settings) as r, r.http() as http:
        assert (await http.post(COMPLETIONS, json=BODY, headers={header: value})).status_code == 200


async def test_the_access_log_names_the_tenant(tenants: Tenants, capsys: pytest.CaptureFixture[str]) -> None:
    async with rig(**tenants.settings) as r, r.http() as http:
        assert (await http.post(COMPLETIONS, json=BODY, headers=tenants.me)).status_code == 200
        r.manager.access_log.write()
    assert re.search(r"tenant=\S*me\b", capsys.readouterr().out)
    assert tenants.mine not in capsys.readouterr().out


async def test_the_line_of_a_refusal_names_the_tenant(tenants: Tenants, tmp_path: Path) -> None:
    endpoint, unusable = f"ipc://{tmp_path}/zeromq-0", {"max_tokens": 10_000_000}
    with capture_logs() as log:
        async with rig(zeromq_endpoint=endpoint, **tenants.settings) as r, r.http() as http:
            for headers in (tenants.me, tenants.you, {}):
                await http.post(COMPLETIONS, json=BODY | unusable, headers=headers)
            async with AsyncClient(endpoint, api_key=tenants.mine) as client:
                for prompt in ([1_000_000], [1] * 50_000):
                    with pytest.raises(InvalidRequest):
                        await client.generate(prompt)
    refused = [(line["path"], line.get("tenant")) for line in log if line["event"] == "refused"]
    assert refused == [*((COMPLETIONS, tenant) for tenant in ("me", "you", None)), *[("zeromq", "me")] * 2]


async def test_a_body_is_not_read_without_a_key(tenants: Tenants) -> None:
    async with rig(**tenants.settings, max_body_bytes=1000) as r, r.http() as http:
        answer = await http.post(COMPLETIONS, content=b"x" * 5000)
        assert answer.status_code == 401


async def test_tenants_share_no_pages(tenants: Tenants) -> None:
    async with whole_server(**tenants.settings) as (r, _), r.http() as http:

        async def reused(headers: dict[str, str]) -> int:
            answer = await http.post(COMPLETIONS, json={**BODY, "prompt": LONG}, headers=headers)
            return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert [await reused(headers) for headers in (tenants.me, tenants.you, tenants.me)] == [0, 0, 96]


async def test_a_stream_is_for_its_tenant_only(tenants: Tenants) -> None:
    async with rig(**tenants.settings) as r, r.http() as http:
        mine = {**tenants.me, "Idempotency-Key": "one"}
        assert (await http.post(COMPLETIONS, json={**BODY, "stream": True}, headers=mine)).status_code == 200
        assert (await http.get("/v1/streams/one", headers=tenants.me)).status_code == 200
        assert (await http.get("/v1/streams/one", headers=tenants.you)).status_code == 404
        yours = {**tenants.you, "Idempotency-Key": "one"}
        joined = await http.post(COMPLETIONS, json={**BODY, "stream": True}, headers=yours)
        assert (joined.status_code, joined.json()["error"]["code"]) == (422, "idempotency_key_reused")


async def only_its_tenant(http: httpx.AsyncClient, tenants: Tenants) -> None:
    """Every way to a stored response is closed to the other tenant."""
    asked = {"input": "hello", "max_output_tokens": 4, "store": True}
    response = (await http.post(RESPONSES, json=asked, headers=tenants.me)).json()
    path = f"{RESPONSES}/{response['id']}"
    after = {**asked, "previous_response_id": response["id"]}
    for method, where in (("GET", path), ("GET", f"{path}/input_items"), ("POST", f"{path}/cancel"), ("DELETE", path)):
        assert (await http.request(method, where, headers=tenants.you)).status_code == 404, where
    assert (await http.post(RESPONSES, json=after, headers=tenants.you)).status_code == 404
    assert (await http.post(RESPONSES, json=after, headers=tenants.me)).status_code == 200
    assert (await http.get(path, headers=tenants.me)).status_code == 200
    assert (await http.delete(path, headers=tenants.me)).status_code == 200


async def test_a_response_is_for_its_tenant_only(tenants: Tenants) -> None:
    async with rig(**tenants.settings) as r, r.http() as http:
        await only_its_tenant(http, tenants)


async def test_a_response_is_for_its_tenant_only_through_another_gateway(tenants: Tenants) -> None:
    async with two_gateways(**tenants.settings) as (r, second, scheduler), r.http() as http, Rig.http(second) as other:
        asked = {"input": "hello", "max_output_tokens": 4, "store": True}
        for path, body, key in ((RESPONSES, asked, "one"), (COMPLETIONS, {**BODY, "stream": True}, "two")):
            call = asyncio.ensure_future(http.post(path, json=body, headers={**tenants.me, "Idempotency-Key": key}))
            await r.cluster.wait_until(lambda: bool(scheduler.running))
            scheduler.step(4)
            assert (await call).status_code == 200
        for gateway in (http, other):
            for path in (f"{RESPONSES}/one", f"{RESPONSES}/one/input_items", "/v1/streams/two"):
                assert (await gateway.get(path, headers=tenants.you)).status_code == 404, path
                assert (await gateway.get(path, headers=tenants.me)).status_code == 200, path


async def test_an_admin_may_reset_caches_and_names_tenants(tenants: Tenants, tmp_path: Path) -> None:
    async with rig(**tenants.settings, answer_cache="exact") as r, r.http() as http:
        await add_directory(r, tmp_path)
        await http.post(COMPLETIONS, json=BODY, headers=tenants.me)
        assert (await http.post("/v1/cache/reset", headers=tenants.me)).status_code == 403
        for tenant, n_answers in (("you", 0), ("me", 1)):
            done = await http.post("/v1/cache/reset", json={"caller": tenant}, headers=tenants.you)
            assert (done.status_code, done.json()["answers"]) == (200, n_answers)


async def test_zeromq_clients_show_a_key_with_each_call(tenants: Tenants, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/zeromq-0"
    async with rig(zeromq_endpoint=endpoint, **tenants.settings) as r:
        async with AsyncClient(endpoint, api_key=tenants.mine) as client:
            assert len((await client.generate([1, 2, 3], max_tokens=4, request="one")).tokens) == 4
            assert await client.models() == ["hash-chain"]
            assert "caches" in await client.stats()
        assert r.manager.metrics.zeromq_undecodable._value.get() == 0
        for key in (None, tenants.mine[:-4] + "AAAA"):
            async with AsyncClient(endpoint, api_key=key) as client:
                for call in (client.generate([1, 2, 3], max_tokens=4), client.models(), client.stats()):
                    with pytest.raises(InvalidRequest) as refused:
                        await call
                    assert refused.value.code == "invalid_api_key"
                assert (await client.reset_cache()).answers == 0, "at the socket of the server its user is the operator"
        async with AsyncClient(endpoint, api_key=tenants.yours) as client:
            with pytest.raises(InvalidRequest, match="belongs to another request"):
                await client.generate([1, 2, 3], max_tokens=4, request="one")


LARGE = "x" * 200_000


async def test_what_is_still_read_or_tokenised_is_for_its_connection_only(tenants: Tenants) -> None:
    """A stranger who knows the id neither cancels the request nor becomes its client."""
    async with zmq_rig(2, **tenants.settings, max_length=300_000) as (r, (mine, other)):
        await r.add_scheduler()
        slow = HeldText()
        r.gateway.admission.builder.encoder.model = slow
        body = msgspec.json.encode({"prompt": LARGE, "max_tokens": 4, "temperature": 0})
        asked = public.AnswersWanted(request="one", api="completion", body=body, api_key=tenants.mine)
        await mine.send(asked)
        await r.cluster.wait_until(lambda: r.gateway.bodies.n_bytes > 0)
        await other.send(msgspec.structs.replace(asked, api_key=tenants.yours))
        refused = await other.receive()
        assert isinstance(refused, public.Failed)
        assert refused.code == "conflict"
        await other.send(public.CancelRequest(request="one"))
        refused = await other.receive()
        assert isinstance(refused, public.Failed)
        assert refused.code == "not_found"
        slow.may_go.set()
        assert isinstance(await mine.receive(), public.Accepted)
        assert len(await mine.receive_tokens(4)) == 4


async def test_a_stranger_confirms_nothing(tenants: Tenants) -> None:
    async with zmq_rig(2, **tenants.settings) as (r, (mine, other)):
        await r.add_scheduler()
        body = msgspec.json.encode({"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0})
        asked = public.AnswersWanted(request="one", api="completion", body=body, api_key=tenants.mine)
        await mine.send(asked)
        while not isinstance(await mine.receive(), public.Finished):
            pass
        undelivered = r.manager.finished.undelivered
        now_s = asyncio.get_running_loop().time()
        assert undelivered.n_pending(now_s) == 1
        await other.send(public.Received(request="one", up_to=4))
        await other.send(public.ModelsWanted(call="after", api_key=tenants.yours))
        assert isinstance(await other.receive(), public.Models)
        assert undelivered.n_pending(now_s) == 1
        await mine.send(public.Received(request="one", up_to=4))
        await r.cluster.wait_until(lambda: undelivered.n_pending(now_s) == 0)
