"""Every call of every door needs the role that SECURITY.md says: all paths with all methods, all messages of clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import zmq

from actors.gateway.http.api import ENDPOINTS
from actors.gateway.zeromq.keys import FOR_ADMINS, FOR_METRICS
from messages import public
from messages.access.api_key import Role, new_key
from messages.access.key_file import change_keys
from messages.wire.message import Message
from tests.support.examples.messages import PUBLIC
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.zmq_clients import ZmqConnection, zmq_rig

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
UNKNOWN = ("/nowhere", "/v1", "/v1/models/../metrics", "/%2Fmetrics", "/metrics/", "/V1/METRICS", "/v1/cache/reset/")
OPEN, KEYED = {one.path for one in ENDPOINTS if one.is_open}, {one.path for one in ENDPOINTS if not one.is_open}


@pytest.fixture
def keys(tmp_path: Path) -> dict[Role, str]:
    made = {role: new_key(role.value, role, 1.0) for role in Role}
    change_keys(tmp_path / "keys.json", lambda keys: [record for _, record in made.values()])
    return {role: text for role, (text, _) in made.items()}


@pytest.fixture
def settings(keys: dict[Role, str], tmp_path: Path) -> dict[str, Any]:
    return {"keys_file": str(tmp_path / "keys.json")}


def concrete(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "x", path)


async def test_without_a_key_only_probes_and_the_empty_page_are_answered(settings: dict[str, Any]) -> None:
    of_the_page = {"/", "/page/{name:path}"}  # its files, which are the same for every server; what it shows needs a key
    assert {"/health", "/live", "/livez", "/ping", "/ready", "/readyz", "/v1/health"} | of_the_page == OPEN
    async with rig(**settings) as r, r.http() as http:
        for path in (*map(concrete, sorted(KEYED)), *UNKNOWN):
            for method in METHODS:
                answer = await http.request(method, path)
                assert answer.status_code in (401, 404, 405, 307), (method, path, answer.status_code)
                assert "hash-chain" not in answer.text, (method, path)
        for one in ENDPOINTS:
            answer = await http.request(one.method, concrete(one.path))
            assert (answer.status_code != 401) is one.is_open, (one.method, one.path, answer.status_code)


async def test_a_key_opens_what_its_role_may_ask_for(settings: dict[str, Any], keys: dict[Role, str]) -> None:
    async with rig(**settings) as r, r.http() as http:

        async def status(method: str, path: str, role: Role) -> int:
            answer = await http.request(method, concrete(path), headers={"x-api-key": keys[role]}, content=b"{}")
            return answer.status_code

        for one in ENDPOINTS:
            assert (await status(one.method, one.path, Role.USER) == 403) is one.needs_admin, one.path
            assert await status(one.method, one.path, Role.ADMIN) not in (401, 403), one.path
            may_read = one.is_open or one.shows_metrics
            assert (await status(one.method, one.path, Role.METRICS) == 403) is not may_read, one.path
        shown = await http.get("/v1/metrics", headers={"x-api-key": keys[Role.METRICS]})
        assert shown.json() == (await http.get("/v1/metrics", headers={"x-api-key": keys[Role.ADMIN]})).json()


async def test_every_message_of_clients_needs_its_role(settings: dict[str, Any], keys: dict[Role, str]) -> None:
    tcp: dict[str, Any] = {
        "zeromq_tcp_endpoint": "tcp://127.0.0.1:*"
    }  # so that nobody is an operator for coming through the Unix socket
    async with zmq_rig(**settings, **tcp) as (r, _):
        assert r.gateway.servers.zeromq is not None
        wire = ZmqConnection(r.gateway.servers.zeromq._socket._socket.get_string(zmq.LAST_ENDPOINT))
        try:
            for example in (one for one in PUBLIC if isinstance(one, public.KeyedMessage)):
                refusals = [await refusal(wire, msgspec.structs.replace(example, api_key=key)) for key in ("", keys[Role.USER])]
                refused = [await refusal(wire, msgspec.structs.replace(example, api_key=keys[Role.METRICS])) for _ in range(2)]
                assert (refused == ["operator_only"] * 2) is not isinstance(example, FOR_METRICS), example
                assert refusals[0] == "invalid_api_key", example
                assert (refusals[1] == "operator_only") is isinstance(example, FOR_ADMINS), example
                assert refusals[1] != "invalid_api_key", example
            assert await refusal(wire, public.CancelRequest(request="unknown")) == "not_found"
        finally:
            wire.close()
    kinds = {type(one) for one in PUBLIC}
    assert [kind for kind in get_args(public.ClientMessage) if kind not in kinds] == [], "each has an example"


async def refusal(wire: ZmqConnection, message: Message) -> str:
    """The word with which a message is refused; "" for another answer."""
    await wire.send(message)
    answer = await wire.receive()
    return answer.fine_code or answer.code if isinstance(answer, public.Failed) else ""
