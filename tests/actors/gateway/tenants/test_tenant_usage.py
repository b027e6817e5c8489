"""What one gateway counts of tenants, as figures for the status: bounded, and with each request once."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from actors.gateway.tenants.own_usage import own_exposition
from actors.gateway.tenants.tenant_usage import TenantUsage
from messages.access.api_key import Role, new_key
from messages.access.tenant_policy import MOST_NAMED_TENANTS, OTHER_TENANTS, TenantPolicy
from tests.support.tenants.limited_rig import limited_rig


def test_only_the_first_tenants_have_names() -> None:
    usage = TenantUsage(CollectorRegistry())
    for number in range(MOST_NAMED_TENANTS + 3):
        usage.used(f"tenant-{number}", 2, 3)
    figures = usage.statistics()
    assert len(figures) == 2 * (MOST_NAMED_TENANTS + 1)
    assert (figures["ended requests of tenant-0"], figures["used tokens of tenant-0"]) == (1, 5)
    assert (figures["ended requests of (other)"], figures["used tokens of (other)"]) == (3, 15)


def test_no_tenant_has_the_name_of_all_others_together() -> None:
    assert own_exposition(f'a{{tenant="{OTHER_TENANTS}"}} 1'.encode(), "other") == b"", "it would see what others use"
    with pytest.raises(ValueError, match="tenant: expected"):
        new_key(OTHER_TENANTS, Role.USER, 0.0)


def test_a_tenant_that_was_only_refused_has_used_nothing() -> None:
    usage = TenantUsage(CollectorRegistry())
    usage.refused("acme", "requests_per_min")
    assert usage.statistics() == {}


async def test_a_gateway_tells_of_tenants_without_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy()) as r, r.http() as http:
        for n_tokens in (4, 5):
            body = {"prompt": [1, 2, 3], "max_tokens": n_tokens}
            assert (await http.post("/v1/completions", json=body, headers=r.me)).status_code == 200
        figures = r.rig.gateway.statistics()
        assert (figures["ended requests of me"], figures["used tokens of me"]) == (2, 15)
        seen = (await http.get("/v1/metrics", headers=r.me)).json()
        assert seen["used tokens of me"] == 15
