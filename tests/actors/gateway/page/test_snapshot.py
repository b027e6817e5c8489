"""What viewers see: an admin all of it, a tenant what is its own, and nobody the whole id of a stream without keys."""

from __future__ import annotations

import pytest

from actors.gateway.page.devices import DeviceRow
from actors.gateway.page.requests import MOST_ROWS, RequestRows, merged, part_of
from actors.gateway.page.snapshot import Audience, Sequences, branch_of, snapshot_for
from actors.gateway.page.tenants import TenantLine
from messages.lifecycle.lifecycle import MetricFamily, MetricSample
from tests.support.page.collected import child, collected, row

ALL, ME = Audience(), Audience("me")


def family(name: str, *values: tuple[dict[str, str], float], suffix: str = "_total") -> MetricFamily:
    samples = [MetricSample(suffix=suffix, labels=labels, value=value) for labels, value in values]
    return MetricFamily(name=name, documentation="", type="", samples=samples)


def usage(tenant: str, tokens: float) -> list[MetricFamily]:
    of_parts = ({"tenant": tenant, "part": "prompt"}, tokens), ({"tenant": tenant, "part": "output"}, 2 * tokens)
    refused = ({"tenant": tenant, "limit": "a"}, 1.0), ({"tenant": tenant, "limit": "b"}, 2.0)
    return [
        family("tardigrade_tenant_requests", ({"tenant": tenant}, 3.0)),
        family("tardigrade_tenant_tokens", *of_parts),
        family("tardigrade_tenant_refused", *refused),
    ]


@pytest.mark.parametrize(
    ("name", "branch"),
    [
        ("gateway/1", "clients"), ("custodian/0", "clients"), ("accounts/0", "clients"), ("worker/2.1b", "replica 2"),
        ("scheduler/10", "replica 10"), ("vault/0", "replica 0"), ("cache_directory/0", "services"), ("embedder/0", "services"),
    ],
)  # fmt: skip
def test_every_actor_has_its_place(name: str, branch: str) -> None:
    assert branch_of(name) == branch


def test_a_tenant_sees_its_own_requests_and_usage_alone() -> None:
    requests = RequestRows([row("me", 1), row("you", 2)], {"me": 1, "you": 1})
    accounts = child("accounts/0", statistics={"tokens today of me": 5.0, "tokens today of you": 6.0})
    found = collected([accounts], requests=requests, own_families=[*usage("me", 10), *usage("you", 20)])
    own = snapshot_for(ME, found)
    assert [one.id for one in own.requests] == ["req-1"]
    assert own.n_requests == 1
    assert own.tenants == [TenantLine("me", 1, 3.0, 10.0, 20.0, 3.0, today=5.0)]
    all_of_it = snapshot_for(ALL, found)
    assert ([one.id for one in all_of_it.requests], all_of_it.n_requests) == (["req-1", "req-2"], 2)
    assert [one.tenant for one in all_of_it.tenants] == ["you", "me"]


def test_a_tenant_learns_no_reasons_and_no_process() -> None:
    dead = child("worker/0.0", last_exit="exit status 3 (worker/0.0 failed in a step of req-1)", retired="too many deaths: x")
    own, whole = (snapshot_for(one, collected([dead])).actors[0] for one in (ME, ALL))
    assert (own.pid, own.last_exit, own.retired) == (0, "exit status 3", "too many deaths")
    assert (whole.pid, whole.last_exit) == (77, dead.last_exit)
    assert [snapshot_for(one, collected()).supervisor.pid for one in (ME, ALL)] == [0, 55]


def test_a_long_list_is_cut_and_counted() -> None:
    rows = [row("", number, age_s=1000.0 - number) for number in range(MOST_ROWS + 5)]
    found = snapshot_for(ALL, collected(requests=RequestRows(rows, {"": MOST_ROWS + 5})))
    assert (len(found.requests), found.n_requests, found.requests[0].id) == (MOST_ROWS, MOST_ROWS + 5, "req-0")


def test_the_requests_of_all_gateways_are_one_list_the_oldest_first() -> None:
    whole = merged(
        [RequestRows([row("a", 1, 5.0)], {"a": 1}), RequestRows([row("a", 2, 9.0), row("b", 3, 1.0)], {"a": 1, "b": 1})]
    )
    assert ([one.id for one in whole.rows], whole.n_by_tenant) == (["req-2", "req-1", "req-3"], {"a": 2, "b": 1})


@pytest.mark.parametrize("text", ["req-0123456789abcdef01234567", "x", "", "a" * 200])
def test_a_shown_part_of_an_id_leaves_half_of_it_to_be_guessed(text: str) -> None:
    shown = part_of(text).removesuffix("…")
    assert text.startswith(shown)
    assert len(shown) <= len(text) / 2
    assert len(shown) <= 16


def test_sequences_are_those_of_all_gateways_and_schedulers() -> None:
    gauges = {name: family(f"tardigrade_{name}_sequences", ({}, 4.0), suffix="") for name in ("active", "waiting")}
    children = [
        child("gateway/0", metrics=[family("tardigrade_active_sequences", ({}, 99.0), suffix="")]),  # older than its own
        child("gateway/1", metrics=list(gauges.values())),
        child("scheduler/0", statistics={"running": 2.0, "waiting": 1.0}),
        child("scheduler/1", statistics={"running": 3.0}),
    ]
    found = snapshot_for(ALL, collected(children, own_families=[gauges["active"]]))
    assert found.sequences == Sequences(active=8, running=5, waiting=5)


def test_the_gpus_are_shown_that_some_actor_reports() -> None:
    busy = family("tardigrade_gpu_busy_ratio", ({"gpu": "1"}, 0.5), ({"gpu": "0"}, 0.25), suffix="")
    power = family("tardigrade_gpu_power_watts", ({"gpu": "1"}, 300.0), suffix="")
    other = family("something_else", ({"gpu": "7"}, 1.0))
    found = snapshot_for(ALL, collected([child("worker/0.0", metrics=[busy, power, other]), child("worker/0.1")]))
    assert found.devices == [DeviceRow("0", busy=0.25), DeviceRow("1", busy=0.5, power_w=300.0)]


def test_before_the_supervisor_has_answered_the_state_is_unknown() -> None:
    assert snapshot_for(ALL, collected()).state == "unknown"
