"""Calls for vectors of several tenants: what a call that fails has used, and what one tenant's flood leaves to others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messages.access.tenant_policy import TenantPolicy
from tests.support.embedding.embedders import HeldEmbedder, add_embedder, gateway_fields
from tests.support.tenants.limited_rig import limited_rig

PATH, TEXT = "/v1/embeddings", {"input": "hello hello"}  # four tokens
COMPLETION = {"prompt": [1, 2, 3], "max_tokens": 4}


async def test_a_call_that_fails_has_used_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TenantPolicy(requests_per_min=1, tokens_per_day=4)
    fields = {**gateway_fields(), "request_timeout_s": 0.01}
    async with limited_rig(tmp_path, monkeypatch, policy, **fields) as r, r.http() as http:
        assert [(await http.post(PATH, json=TEXT)).status_code for _ in range(2)] == [504, 504], "there is no embedder"
        await r.wait_used(0)
        text = (await http.get("/metrics")).text
        assert 'tardigrade_tenant_tokens_total{actor="gateway/0",part="prompt",tenant="me"} 0.0' in text


async def test_a_call_whose_client_leaves_has_used_what_an_embedder_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(tokens_per_day=100), **gateway_fields()) as r:
        cluster = r.rig.cluster
        for _ in range(2):  # there is no embedder at first
            async with r.http() as http:
                call = asyncio.ensure_future(http.post(PATH, json=TEXT))
                await cluster.wait_until(lambda: r.used_today == 4)
                await cluster.settle()  # the gateway has heard that there is room
                call.cancel()
            await r.wait_used(0)
        embedder = HeldEmbedder(cluster)
        cluster.introduce(embedder)
        async with r.http() as http:
            call = asyncio.ensure_future(http.post(PATH, json=TEXT))
            await cluster.wait_until(lambda: len(embedder.held) == 1)
            call.cancel()
        await cluster.wait_until(lambda: not r.rig.manager.gate.n_active)
        await r.wait_used(4)


async def test_a_flood_of_one_tenant_leaves_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {**gateway_fields(), "max_active_requests": 10}
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(), **fields) as r, r.http() as http:
        gate = r.rig.manager.gate
        calls = [asyncio.ensure_future(http.post(PATH, json=TEXT)) for _ in range(12)]
        await r.rig.cluster.wait_until(lambda: gate.n_active + sum(call.done() for call in calls) == len(calls))
        refused = [call.result() for call in calls if call.done()]
        assert [(one.status_code, one.json()["error"]["code"]) for one in refused] == [(429, "caller_share")] * 4
        assert "sequences of one caller" in refused[0].text
        assert (await http.post("/v1/completions", json=COMPLETION, headers=r.admin)).status_code == 200
        await add_embedder(r.rig)
        assert {(await call).status_code for call in calls} == {200, 429}
        assert gate.n_active == 0
        assert (await http.post(PATH, json=TEXT)).status_code == 200, "its places are free again"


async def test_a_call_of_another_tenant_does_not_wait_for_all_of_a_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(), **gateway_fields()) as r, r.http() as http:
        embedder, gate = HeldEmbedder(r.rig.cluster), r.rig.manager.gate
        r.rig.cluster.introduce(embedder)
        flood = [asyncio.ensure_future(http.post(PATH, json=TEXT)) for _ in range(40)]
        await r.rig.cluster.wait_until(lambda: gate.n_active == 40 and len(embedder.held) == 4)
        await r.rig.cluster.settle()
        other = asyncio.ensure_future(http.post(PATH, json={"input": "hello"}, headers=r.admin))
        await r.rig.cluster.wait_until(lambda: gate.n_active == 41)
        await r.rig.cluster.settle()
        embedder.answer()
        await r.rig.cluster.wait_until(lambda: len(embedder.held) == 4)
        assert 3 in [len(message.ids) for _, message in embedder.held], "the flood's texts have four tokens"
        while not all(call.done() for call in (*flood, other)):
            embedder.answer()
            await r.rig.cluster.settle()
        assert {call.result().status_code for call in (*flood, other)} == {200}
