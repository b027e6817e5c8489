"""A tenant with limits at every door: what is refused and how, what is told of the limits, and what is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.gateway.requests.refusals import Refusal
from messages.access.allowances import TakeAllowance, UsageTold
from messages.access.audit_log import AuditRecord
from messages.access.tenant_policy import TenantPolicy
from messages.client import AsyncClient
from messages.errors import Overloaded
from tests.support.embedding.embedders import add_embedder, gateway_fields
from tests.support.gateway.faulty_disk import replace_disk
from tests.support.tenants.limited_rig import be_impatient, limited_rig

COMPLETIONS = "/v1/completions"
BODY: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
DOORS: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, BODY),
    (COMPLETIONS, {**BODY, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 4}),
    ("/api/generate", {"prompt": "hi", "options": {"num_predict": 4}}),
    ("/v1/generate", {"tokens": [1, 2, 3], "max_tokens": 4}),
    ("/v1/batch", {"tokens": [[1, 2], [3]], "max_tokens": 4}),
    ("/v1/batch", {"requests": [{"tokens": [1, 2], "max_tokens": 4}]}),
]


@pytest.mark.parametrize(("path", "body"), DOORS)
async def test_every_door_has_the_limits_and_tells_them(
    path: str, body: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = TenantPolicy(requests_per_min=1, tokens_per_min=60_000)
    async with limited_rig(tmp_path, monkeypatch, policy) as r, r.http() as http:
        first, second = [await http.post(path, json=body) for _ in range(2)]
        assert first.status_code == 200, first.text
        assert first.headers["x-ratelimit-limit-requests"] == "1"
        assert first.headers["x-ratelimit-remaining-requests"] == "0"
        assert first.headers["x-ratelimit-limit-tokens"] == "60000"
        assert 55_000 < int(first.headers["x-ratelimit-remaining-tokens"]) < 60_000
        assert second.status_code == 429
        assert 1 <= int(second.headers["retry-after"]) <= 60
        assert "requests_per_min: the limit of the tenant me is 1 requests a minute" in second.text
        others = await http.post(path, json=body, headers=r.admin)
        assert (others.status_code, "x-ratelimit-limit-requests" in others.headers) == (200, False)


async def test_clients_do_not_ask_again_until_the_next_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TenantPolicy(requests_per_min=2, tokens_per_day=7)
    async with limited_rig(tmp_path, monkeypatch, policy) as r, r.http() as http:
        taken = await http.post(COMPLETIONS, json=BODY)
        of_the_day = await http.post(COMPLETIONS, json=BODY)
        assert (taken.status_code, of_the_day.status_code) == (200, 429)
        assert of_the_day.json()["error"]["code"] == "insufficient_quota"
        # openai's client obeys this header; it asks again at once for a Retry-After of more than a minute
        is_long = int(of_the_day.headers["retry-after"]) > 60
        assert of_the_day.headers.get("x-should-retry") == ("false" if is_long else None)


async def test_zeromq_clients_are_told_when_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, policy = f"ipc://{tmp_path}/zeromq-0", TenantPolicy(requests_per_min=1)
    async with (
        limited_rig(tmp_path, monkeypatch, policy, zeromq_endpoint=endpoint) as r,
        AsyncClient(endpoint, api_key=r.key) as client,
    ):
        assert len((await client.generate([1, 2, 3], max_tokens=4)).tokens) == 4
        with pytest.raises(Overloaded, match="requests a minute") as refused:
            await client.generate([1, 2, 3], max_tokens=4)
        assert (refused.value.code, refused.value.retry_after_s > 0.0) == ("rate_limit_exceeded", True)


async def test_vectors_count_as_requests_with_the_tokens_of_their_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = TenantPolicy(tokens_per_day=8)
    async with limited_rig(tmp_path, monkeypatch, policy, **gateway_fields()) as r, r.http() as http:
        await add_embedder(r.rig)
        answers = [await http.post("/v1/embeddings", json={"input": "hello hello"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429], "a text has 4 tokens"
        assert answers[2].json()["error"]["code"] == "insufficient_quota"
        assert r.used_today == 8


async def test_the_place_of_a_request_is_free_when_its_answer_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(max_sequences=2)) as r, r.http() as http:
        for _ in range(5):
            assert (await http.post(COMPLETIONS, json={**BODY, "n": 2})).status_code == 200
        refused = await http.post(COMPLETIONS, json={**BODY, "n": 3})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "exceeds_limit")
        await r.wait_used(5 * (3 + 2 * 4))


async def test_a_batch_is_accepted_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(requests_per_min=3)) as r, r.http() as http:
        batch = {"requests": [{"tokens": [1, 2], "max_tokens": 4}] * 2}
        assert [(await http.post("/v1/batch", json=batch)).status_code for _ in range(2)] == [200, 429]
        assert (await http.post(COMPLETIONS, json=BODY)).status_code == 200


async def test_what_is_refused_for_another_reason_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TenantPolicy(requests_per_min=1, max_sequences=1, tokens_per_day=100)
    async with limited_rig(tmp_path, monkeypatch, policy) as r, r.http() as http:
        r.rig.manager.gate.check_state = _refuse_once(r.rig.manager.gate.check_state)
        assert (await http.post(COMPLETIONS, json=BODY)).status_code == 503
        assert (await http.post(COMPLETIONS, json=BODY)).status_code == 200
        await r.wait_used(7)


async def test_what_the_journal_cannot_record_has_used_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, journal = TenantPolicy(max_sequences=1, tokens_per_day=100), str(tmp_path / "journal")
    async with limited_rig(tmp_path, monkeypatch, policy, journal_path=journal) as r, r.http() as http:
        disk = replace_disk(r.rig.gateway.journal)
        disk.refuse()
        refused = await http.post(COMPLETIONS, json={**BODY, "prompt": [1] * 50})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "journal_unavailable")
        disk.recover()
        await r.rig.cluster.wait_until(lambda: r.rig.gateway.journal.is_healthy)
        assert (await http.post(COMPLETIONS, json={**BODY, "prompt": [1] * 50})).status_code == 200
        await r.wait_used(54)
        usage = (await http.get("/metrics")).text
        assert 'tardigrade_tenant_requests_total{actor="gateway/0",tenant="me"} 1.0' in usage


async def test_without_accounts_a_gateway_decides_alone_and_they_count_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(requests_per_min=3)) as r, r.http() as http:
        assert (await http.post(COMPLETIONS, json=BODY)).status_code == 200
        await r.kill_accounts()
        be_impatient(monkeypatch)
        statuses = [(await http.post(COMPLETIONS, json=BODY)).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        await r.start_accounts(2)
        await r.wait_used(3 * 7)
        assert (await http.post(COMPLETIONS, json=BODY)).status_code == 429


async def test_accounts_that_say_nothing_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(requests_per_min=3)) as r, r.http() as http:
        be_impatient(monkeypatch)
        r.accounts._handlers[TakeAllowance] = lambda delivery, message: None
        assert [(await http.post(COMPLETIONS, json=BODY)).status_code for _ in range(4)] == [200, 200, 200, 429]
        await r.wait_used(3 * 7)


async def test_a_successor_goes_on_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, journal = TenantPolicy(max_sequences=1, tokens_per_day=10**6), str(tmp_path / "journal")
    async with limited_rig(tmp_path, monkeypatch, policy, journal_path=journal, with_scheduler=False) as r:
        scheduler = await r.rig.add_scheduler(is_automatic=False)
        async with r.http() as http:
            body = {**BODY, "max_tokens": 40, "stream": True}
            call = asyncio.ensure_future(http.post(COMPLETIONS, json=body, headers={"Idempotency-Key": "one"}))
            await r.rig.cluster.wait_until(lambda: bool(scheduler.running))
            scheduler.step(10)
            await r.rig.cluster.wait_until(lambda: r.used_today == 13)
            call.cancel()
        await r.rig.kill_gateway()
        await r.rig.start_gateway(2)
        await r.rig.cluster.wait_until(lambda: r.rig.gateway.incarnation_of("accounts/0") == 1 and bool(scheduler.running))
        async with r.http() as http:
            assert (await http.post(COMPLETIONS, json=BODY)).status_code == 429
            scheduler.step(30)
            await r.wait_used(43)


async def test_a_tenant_without_limits_costs_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(weight=3.0)) as r, r.http() as http:
        heard = list[object]()
        await r.rig.cluster.settle()  # each has told the other that there is nothing
        for kind in (TakeAllowance, UsageTold):
            r.accounts._handlers[kind] = lambda delivery, message: heard.append(message)
        assert (await http.post(COMPLETIONS, json=BODY)).status_code == 200
        await r.rig.cluster.settle()
        assert heard == []


async def test_the_terms_of_a_request_are_those_of_its_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = TenantPolicy(weight=3.0, page_share=0.25, priority=10)
    async with limited_rig(tmp_path, monkeypatch, policy, with_scheduler=False) as r, r.http() as http:
        scheduler = await r.rig.add_scheduler(is_automatic=False)
        calls = []
        for headers in (r.me, r.admin):
            calls.append(asyncio.ensure_future(http.post(COMPLETIONS, json={**BODY, "priority": -7}, headers=headers)))
            await r.rig.cluster.wait_until(lambda: len(scheduler.running) == len(calls))
        terms = [submit.terms for submit in scheduler.submits]
        assert [(one.weight, one.page_share, one.priority) for one in terms] == [(3.0, 0.25, 10), (1.0, 1.0, -7)]
        scheduler.step(4)
        await asyncio.gather(*calls)


async def test_the_audit_log_says_whose_policy_was_set_and_to_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "audit.log"
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(), audit_file=str(log)) as r, r.http() as http:
        await http.put("/v1/tenants/me", json={"requests_per_min": 1, "other": "secret"}, headers=r.admin)
        await http.put("/v1/tenants/me", json={"requests_per_min": 1, "weight": 2.5}, headers=r.admin)
    lines = [msgspec.json.decode(line, type=AuditRecord) for line in read_bytes_of(log).splitlines()]
    assert [(one.result, one.parameters) for one in lines] == [
        ("invalid", {"name": "me", "requests_per_min": 1, "other": "given"}),
        ("done", {"name": "me", "requests_per_min": 1, "weight": 2.5}),
    ]


def read_bytes_of(path: Path) -> bytes:
    return path.read_bytes()


async def test_an_admin_sees_and_sets_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with limited_rig(tmp_path, monkeypatch, TenantPolicy(weight=3.0)) as r, r.http() as http:
        for method, path in (("GET", "/v1/tenants"), ("GET", "/v1/tenants/me"), ("PUT", "/v1/tenants/me")):
            refused = await http.request(method, path)
            assert (refused.status_code, "supervisor tenants" in refused.text) == (403, True)
        http.headers.update(r.admin)
        assert (await http.get("/v1/tenants")).json()["tenants"]["me"]["weight"] == 3.0
        assert (await http.get("/v1/tenants/you")).json()["is_own"] is False
        done = await http.put("/v1/tenants/me", json={"requests_per_min": 1})
        assert (done.status_code, done.json()["policy"]["weight"], done.json()["policy"]["requests_per_min"]) == (200, 1.0, 1)
        r.accounts.ledger.book.refresh()
        assert [(await http.post(COMPLETIONS, json=BODY, headers=r.me)).status_code for _ in range(2)] == [200, 429]
        for path, body, said in (
            ("/v1/tenants/me", {"wieght": 1}, "wieght"),
            ("/v1/tenants/me", {"weight": -1}, "weight"),
            ("/v1/tenants/a%20b", {}, "name"),
        ):
            refused = await http.put(path, json=body)
            assert (refused.status_code, said in refused.text) == (400, True), refused.text
        assert (await http.delete("/v1/tenants/me")).json()["policy"]["weight"] == 3.0
        names = (await http.get("/metrics")).text
        assert 'tardigrade_tenant_refused_total{actor="gateway/0",limit="requests_per_min",tenant="me"} 1.0' in names


def _refuse_once(original: Any) -> Any:
    """`AdmissionGate.check_state`, which refuses when it is called for the second time: after the tokens were taken."""
    n_calls = 0

    def check_state() -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 3:
            raise Refusal("unavailable", "the server is draining", retry_after_s=5.0)
        original()

    return check_state
