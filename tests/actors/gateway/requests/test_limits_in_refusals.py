"""Every refusal for a limit says which limit, its value, what came, and when to come back if that helps."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from actors.gateway.access import key_ring
from actors.gateway.access.key_ring import KeyRing
from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.cache_reset import page_resets
from actors.gateway.cache_reset.page_resets import PageResets
from actors.gateway.connections.caller_connections import CallerConnections
from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.http.batch_requests import placed_refusal
from actors.gateway.http.connection_limits import no_file_left, too_large_head, too_many_connections
from actors.gateway.http.errors import anthropic_error, error_body, error_response, ollama_error, refusal_of
from actors.gateway.journal.journal import Journal
from actors.gateway.lifecycle.admission_gate import AdmissionGate
from actors.gateway.overload.overload_metrics import OverloadMetrics
from actors.gateway.poison.harm_budget import HarmBudget
from actors.gateway.requests.refusals import Refusal, prompt_too_long
from actors.gateway.requests.request_spec import Ended
from actors.gateway.settings import GatewaySettings
from actors.gateway.tenants.limit_headers import refused_by
from actors.gateway.zeromq.clients import failed_of
from actors.scheduler.admission import judge
from actors.scheduler.policies.late_refusal import late_refusal
from messages.access.api_key import Role, new_key
from messages.access.key_file import change_keys
from messages.access.tenant_policy import LimitName
from messages.descriptors.open_files import most_open_files
from messages.generation.sampling import Sampling
from messages.generation.sequences import Submit
from messages.generation.terms import Terms
from messages.steps import PAGE_TOKENS
from messages.wire.arrays import int32s
from ops.bench.cliffs.simulated import CAPACITY
from tests.support.gateway.request_examples import load_of, request_of, spec_of
from tests.support.planner_bench import sequence_of

_GATEWAY = Path(__file__).parents[4] / "actors" / "gateway"
_WAITS = (429, 503)
_OF_LIMITS = (
    *("overloaded", "queue_full", "caller_share", "shed", "caller_harms_workers", "exceeds_limit", "headers_too_large"),
    *("too_many_connections", "too_many_bodies"),
)


def given(refuse: Callable[[], Any]) -> Refusal:
    """The refusal that a call raises."""
    with pytest.raises(Refusal) as caught:
        refuse()
    return caught.value


def gate(**settings: Any) -> AdmissionGate:
    """A gate that has accepted one request of a caller: one sequence, a prompt of 900 tokens and an output of 10."""
    made = AdmissionGate(
        GatewaySettings(**settings), Journal(""), ReplicaLoads(), lambda: [], OverloadMetrics(CollectorRegistry())
    )
    made.was_ready = True
    made.accepted(request_of(asked()))
    return made


def asked(n_prompt: int = 900) -> Any:
    terms = Terms(max_tokens=10, caller=b"me")
    return msgspec.structs.replace(spec_of(), prompts=[np.zeros(n_prompt, "<i4").tobytes()], terms=terms)


def of_connections(**settings: Any) -> Refusal:
    counts = CallerConnections.of(GatewaySettings(**settings), lambda: 5, lambda why: None)
    assert counts is not None
    places = [counts.enter("10.0.0.1") for _ in range(6)]
    return next(place.refusal for place in places if place is not None and place.refusal is not None)


def shedding(priority: int) -> Refusal:
    """A replica reports that it sheds load."""
    loads = ReplicaLoads()
    loads.note("scheduler/0", load_of(1, 700, level=4))
    settings = GatewaySettings(caller_header="x-key")
    made = AdmissionGate(settings, Journal(""), loads, lambda: ["scheduler/0"], OverloadMetrics(CollectorRegistry()))
    made.accepted(request_of(asked()))
    return given(lambda: made.check_caller(1, msgspec.structs.replace(asked().terms, priority=priority)))


def draining() -> Refusal:
    made = gate()
    made.is_draining = True
    return given(made.check_state)


def harmful() -> Refusal:
    budget = HarmBudget(600.0)
    for _ in range(4):
        budget.charge(b"me", frozenset(("scheduler/0",)), 1.0)
    return given(lambda: budget.check(b"me", 2.0))


def late() -> Refusal:
    """The scheduler's refusal, as the gateway passes it on."""
    sequence = sequence_of(1, ttft_ms=200)
    refused = late_refusal(sequence, sequence.timeline.arrived_s + 0.3, 5, 6.5)
    return refusal_of(Ended(reason="failed", code=refused.code, detail=refused.detail, retry_after_s=refused.retry_after_s))


def full_budget() -> Refusal:
    budget = BodyBudget(5_000_000, 5_000_000)
    budget.count(4_000_000)
    return given(lambda: budget.count(4_000_000))


def full_share_of_bodies() -> Refusal:
    budget = BodyBudget(5_000_000, 5_000_000, are_told_apart=True)
    budget.count(2_065_536)
    return given(lambda: budget.count(3_065_536))


NAMED = {"caller_header": "x-key"}
# name of the limit in the message, its value, what came, the refusal
LIMITS: dict[str, tuple[str, str, Callable[[], Refusal]]] = {
    "open connections": ("gateway.max_connections", "8192", lambda: too_many_connections(8192)),
    "connections of a caller": (
        "gateway.max_caller_connections", "at most 2 open ones of one caller", lambda: of_connections(max_caller_connections=2),
    ),
    "share of connections": ("its share of 5", "at most 4 open ones", lambda: of_connections(**NAMED)),
    "files": ("file descriptors", str(most_open_files()), no_file_left),
    "head": ("headers", "16384 bytes, got 20000", lambda: too_large_head("20000")),
    "one body": ("body", "at most 100 bytes, got 101", lambda: given(lambda: BodyBudget(100, 100).count(101))),
    "all bodies": ("large bodies together", "at most 5000000 bytes", full_budget),
    "bodies of a caller": ("its share of 5000000 (gateway.max_bodies_bytes)", "at most 4000000 bytes", full_share_of_bodies),
    "prompt": ("model's context", "is 100, of which", lambda: prompt_too_long("prompt", 100, 120)),
    "sequences": (
        "gateway.max_active_requests", "at most 2 that are active", lambda: given(lambda: gate(max_active_requests=2).check(2)),
    ),
    "sequences of a caller": (
        "sequences of one caller", "its share of 2; got 1 and 1 more",
        lambda: given(lambda: gate(max_active_requests=2, **NAMED).check_caller(1, asked().terms)),
    ),
    "queued tokens": (
        "queue: ", "at most 1000 tokens", lambda: given(lambda: gate(max_queued_tokens=1000).check_tokens([asked()])),
    ),
    "queued tokens of a caller": (
        "of one caller, its share", "its share of 1000; got 910 and 60 more",
        lambda: given(lambda: gate(max_queued_tokens=1000, **NAMED).check_tokens([asked(50)])),
    ),
    "priority while load is shed": ("level 4 of degradation", "a priority of at most 0, got 3", lambda: shedding(3)),
    "queue of a caller while load is shed": ("level 4 of degradation", "its fair share of 910; got 910", lambda: shedding(0)),
    "drain": ("draining", "no new requests", draining),
    "workers that died": ("workers died of 4 sequences", "3 that cost it nothing", harmful),
    "times that cannot be kept": ("ttft_ms", "got 200 ms, of which 300 ms have passed", late),
    **{
        f"{name.value} of a tenant": (
            name.value, "of the tenant acme is 70 ", lambda name=name: refused_by(name, 70, 3, 20.0, "acme", {}),
        )
        for name in LimitName
    },
    "more than a tenant may ever have": (
        "tokens_per_min", "is 70 tokens a minute; expected no more than that in one request or batch, got 90",
        lambda: refused_by(LimitName.TOKENS, 70, 90, 0.0, "acme", {}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", LIMITS)
def test_a_limit_is_named_with_its_value_and_the_time_to_come_back(which: str) -> None:
    name, value, refuse = LIMITS[which]
    refusal = refuse()
    assert name in refusal.detail
    assert value in refusal.detail
    waits = refusal.status in _WAITS or which == "times that cannot be kept"
    assert (refusal.retry_after_s > 0) == waits, "what never fits is no 429"
    assert refusal.detail.count("come back in ") == waits
    for body_of in (error_body, ollama_error, anthropic_error):
        answer = error_response(refusal, body_of=body_of)
        assert ("retry-after" in answer.headers) == waits
        assert refusal.detail in str(msgspec.json.decode(answer.body))
    failed = failed_of("r", refusal)
    assert (failed.detail, failed.retry_after_s) == (refusal.detail, refusal.retry_after_s), "clients of ZeroMQ are told too"
    placed = placed_refusal(2, refusal)
    assert (placed.detail.count("come back in "), placed.retry_after_s) == (waits, refusal.retry_after_s), (
        "and those of batches"
    )


async def too_many_checks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Awaitable[object]]:
    monkeypatch.setattr(key_ring, "_MOST_CHECKS", 0)
    key, record = new_key("me", Role.USER, 1.0)
    change_keys(folder / "keys", lambda old: [record])
    ring = KeyRing(folder / "keys", lambda: 2.0)
    ring.close()
    return "Authorization: expected at most 0 keys", ring.holder_of(key)


async def too_many_resets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Awaitable[object]]:
    monkeypatch.setattr(page_resets, "_MOST_OPEN", 0)
    resets = PageResets(SimpleNamespace(), 1)  # pyright: ignore[reportArgumentType]
    return "resets of caches: expected at most 0", resets.forget(SimpleNamespace())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("refuse", [too_many_checks, too_many_resets])
async def test_limits_of_what_is_under_way_are_named_too(
    refuse: Callable[[Path, pytest.MonkeyPatch], Awaitable[tuple[str, Awaitable[object]]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, work = await refuse(tmp_path, monkeypatch)
    with pytest.raises(Refusal) as caught:
        await asyncio.ensure_future(work)
    assert said in caught.value.detail
    assert "got 1" in caught.value.detail
    assert caught.value.retry_after_s > 0


def test_a_prompt_that_exceeds_the_pages_of_its_tenant_is_told_of_its_part() -> None:
    terms = Terms(page_share=0.001)
    n_tokens = 60 * PAGE_TOKENS
    submit = Submit(attempt=1, request="r", tokens=int32s([1] * n_tokens), n_prompt=n_tokens, sampling=Sampling(), terms=terms)
    refused = judge(submit, CAPACITY, 0, 10)
    assert refused is not None
    assert "(50 pages of memory), got 960; the tenant's page_share is 0.001 of 50000 pages" in refused.detail


def refusals_of(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
            yield node


def test_no_refusal_for_now_leaves_out_when_to_come_back() -> None:
    """Every place in the gateway that refuses with 429 or 503."""
    n_for_now = 0
    for path in _GATEWAY.rglob("*.py"):
        for call in refusals_of(path):
            why = call.args[0]
            if isinstance(why, ast.Constant) and Refusal(cast("Any", why.value), "").status in _WAITS:
                n_for_now += 1
                assert any(one.arg == "retry_after_s" for one in call.keywords), f"{path}:{call.lineno}"
    assert n_for_now > 20


def test_every_refusal_for_a_limit_has_its_name_and_value_for_traces() -> None:
    for path in _GATEWAY.rglob("*.py"):
        for call in refusals_of(path):
            why = call.args[0]
            if isinstance(why, ast.Constant) and why.value in _OF_LIMITS:
                assert any(one.arg == "limit" for one in call.keywords), f"{path}:{call.lineno}"
