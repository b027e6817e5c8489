"""A tenant sees its own usage in metrics, and nothing of other tenants; an admin sees all."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.gateway.gateway_actor import GatewayActor
from actors.gateway.tenants.own_usage import own_exposition, own_summary
from messages.access.tenant_policy import TenantPolicy
from messages.client import AsyncClient
from tests.support.tenants.limited_rig import limited_rig

COMPLETIONS = "/v1/completions"


async def test_only_an_admin_sees_the_usage_of_all_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(requests_per_min=9)) as r, r.http() as http:
        for headers in (r.me, r.admin):
            answer = await http.post(COMPLETIONS, json={"prompt": [1, 2, 3], "max_tokens": 4}, headers=headers)
            assert answer.status_code == 200
        mine, all_of_them = [(await http.get("/metrics", headers=headers)).text for headers in (r.me, r.admin)]
        label = 'tardigrade_tenant_requests_total{actor="gateway/0",tenant='
        assert mine.count(label) == 1
        assert f'{label}"me"}}' in mine
        assert all_of_them.count(label) == 2
        assert len(mine.splitlines()) > 100, "what is of no tenant is there"


async def test_clients_of_zeromq_see_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def summary(gateway: GatewayActor) -> dict[str, object]:
        return {"actors": {"accounts/0": {"requests": 0.0, "sequences of me": 1.0, "tokens today of you": 7.0}}}

    monkeypatch.setattr(GatewayActor, "summary", summary)
    endpoint = f"ipc://{tmp_path}/zeromq-0"
    async with (
        limited_rig(tmp_path, monkeypatch, TenantPolicy(requests_per_min=9), zeromq_endpoint=endpoint) as r,
        AsyncClient(endpoint, api_key=r.key) as client,
    ):
        assert (await client.stats())["actors"] == {"accounts/0": {"requests": 0.0, "sequences of me": 1.0}}


def test_names_that_hold_others_are_told_apart() -> None:
    lines = [
        b'a{tenant="me"} 1\n',
        b'a{tenant="me2",why="b"} 1\n',
        b'a{why="b",tenant="not-me"} 1\n',
        b"a 1\n",
        b'a{why="tenant"} 1',
    ]
    assert own_exposition(b"".join(lines), "me") == lines[0] + lines[3] + lines[4]
    figures = {
        "tokens today of me": 1.0,
        "tokens today of not-me": 1.0,
        "sequences of me": 2.0,
        "sequences of me2": 1.0,
        "ended requests of you": 4.0,
        "used tokens of you": 5.0,
        "used tokens of me": 6.0,
        "steps": 3.0,
    }
    own = {"tokens today of me": 1.0, "sequences of me": 2.0, "used tokens of me": 6.0, "steps": 3.0}
    seen = own_summary({"actors": {"accounts/0": figures}, "active": 1, **figures}, "me")
    assert seen == {"actors": {"accounts/0": own}, "active": 1, **own}
