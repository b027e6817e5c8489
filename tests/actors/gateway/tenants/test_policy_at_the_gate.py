"""What a gateway refuses before it reads a prompt goes by the policy of the tenant, not by what its client has asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from messages.access.tenant_policy import TenantPolicy
from tests.support.gateway.request_examples import load_of
from tests.support.tenants.limited_rig import LimitedRig, limited_rig

COMPLETIONS, BATCH = "/v1/completions", "/v1/batch"
BODY: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
SHEDDING = 4


async def sheds(r: LimitedRig) -> None:
    """The replica reports the level at which new requests are shed, and the gateway has heard of it."""
    r.rig.scheduler().mailbox.send("gateway/0", load_of(1, level=SHEDDING))
    await r.rig.cluster.wait_until(lambda: r.rig.manager.gate.outlook.level == SHEDDING)


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, BODY), (BATCH, {"requests": [{"tokens": [1, 2], "max_tokens": 4}]})])
async def test_a_tenant_of_low_priority_is_shed_whatever_its_clients_ask_for(
    path: str, body: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(priority=10)) as r, r.http() as http:
        await sheds(r)
        shed = await http.post(path, json=body)
        assert (shed.status_code, shed.json()["error"]["code"]) == (429, "shed")
        assert "got 10" in shed.json()["error"]["message"]
        assert (await http.post(path, json=body, headers=r.admin)).status_code == 200


async def test_the_sequences_of_a_tenant_are_divided_by_its_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TenantPolicy(weight=4.0)
    async with (
        limited_rig(tmp_path, monkeypatch, policy, with_scheduler=False, max_active_requests=20) as r,
        r.http() as http,
    ):
        scheduler = await r.rig.add_scheduler(is_automatic=False)
        asked = list[asyncio.Task[Any]]()
        for _ in range(18):  # 16 times what nobody holds; a tenant of weight 1 has 4 times that, which are 16 of 20
            asked.append(asyncio.ensure_future(http.post(COMPLETIONS, json=BODY)))
            await r.rig.cluster.wait_until(lambda: len(scheduler.running) == len(asked) or asked[-1].done())
        assert len(scheduler.running) == 18
        scheduler.step(4)
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 18


async def test_a_key_that_is_used_again_is_no_free_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TenantPolicy(requests_per_min=2, tokens_per_day=100)
    async with limited_rig(tmp_path, monkeypatch, policy, with_scheduler=False) as r, r.http() as http:
        scheduler, limits, statuses = await r.rig.add_scheduler(is_automatic=False), r.rig.gateway.access.limits, list[int]()
        assert limits is not None
        for _ in range(3):
            asked = asyncio.ensure_future(http.post(COMPLETIONS, json=BODY, headers={"Idempotency-Key": "k"}))
            await r.rig.cluster.wait_until(lambda asked=asked: bool(scheduler.running) or asked.done())
            for sequence in r.rig.manager.dispatcher.book.sequences():
                r.rig.manager.cancel(sequence.request)
            statuses.append((await asked).status_code)
            await r.rig.cluster.wait_until(lambda: bool(r.accounts.tick()) or not len(limits._opened))  # all of it is on disk
        assert (statuses[2], r.used_today) == (429, 2 * 3)


async def test_a_tenant_does_not_take_the_key_of_a_cancelled_request_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(), with_scheduler=False) as r, r.http() as http:
        scheduler, key = await r.rig.add_scheduler(is_automatic=False), {"Idempotency-Key": "k"}
        asked = asyncio.ensure_future(http.post(COMPLETIONS, json=BODY, headers=key))
        await r.rig.cluster.wait_until(lambda: bool(scheduler.running))
        [sequence] = r.rig.manager.dispatcher.book.sequences()
        r.rig.manager.cancel(sequence.request)
        assert (await asked).status_code == 499
        scheduler.is_automatic = True
        foreign = await http.post(COMPLETIONS, json=BODY, headers=key | r.admin)
        assert (foreign.status_code, foreign.json()["error"]["code"]) == (422, "idempotency_key_reused")
        assert (await http.post(COMPLETIONS, json=BODY, headers=key)).status_code == 200
