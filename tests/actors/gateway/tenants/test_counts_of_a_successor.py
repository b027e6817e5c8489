"""What the accounts count after a gateway was killed: all tokens that were computed, of whatever the successor finds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from messages.access.tenant_policy import TenantPolicy
from tests.support.tenants.limited_rig import LimitedRig, limited_rig

COMPLETIONS = "/v1/completions"
BODY: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 40, "temperature": 1.0, "seed": 1}
POLICY = TenantPolicy(max_sequences=9, tokens_per_day=10**6)


async def succeed(r: LimitedRig) -> None:
    """The gateway is killed, and its successor has told the accounts what it knows."""
    await r.rig.kill_gateway()
    await r.rig.start_gateway(2)
    await r.rig.cluster.wait_until(lambda: r.rig.gateway.incarnation_of("accounts/0") == 1)


def tell_nothing(r: LimitedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The present gateway dies before it tells the accounts anything that it has not told so far."""
    assert r.rig.gateway.access.limits is not None
    for name in ("tell_overs", "_tell"):
        monkeypatch.setattr(r.rig.gateway.access.limits.link, name, lambda: None)


async def test_the_answers_that_were_not_the_best_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = str(tmp_path / "journal")
    async with limited_rig(tmp_path, monkeypatch, POLICY, journal_path=journal, with_scheduler=False) as r, r.http() as http:
        scheduler = await r.rig.add_scheduler(is_automatic=False)
        tell_nothing(r, monkeypatch)
        body = {**BODY, "best_of": 3, "max_tokens": 10}
        call = asyncio.ensure_future(http.post(COMPLETIONS, json=body, headers={"Idempotency-Key": "one"}))
        await r.rig.cluster.wait_until(lambda: len(scheduler.running) == 3)
        scheduler.step(10)
        assert (await call).status_code == 200
        assert r.used_today == 3
        await succeed(r)
        await r.wait_used(3 + 3 * 10)
