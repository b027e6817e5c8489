"""A gateway with a cache of answers: an equal request is answered at once, in every API, with the bytes of any other answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway.journal.backlog import PendingFrame
from messages.access.tenant_policy import TenantPolicy
from tests.support.answers.equal_requests import ASKED, OPTIONS, comparable
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.journal_file import written
from tests.support.tenants.limited_rig import limited_rig


async def ask(http: httpx.AsyncClient, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    answer = await http.post(path, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code == 200, answer.text
    return answer


def is_hit(answer: httpx.Response) -> bool:
    return answer.headers.get("x-cache") == "hit"


@pytest.mark.parametrize(("path", "options"), [(path, options) for path, found in OPTIONS.items() for options in found])
async def test_an_equal_request_gets_the_kept_answer(path: str, options: dict[str, Any]) -> None:
    body = {**ASKED[path], **options}
    async with rig(answer_cache="exact") as r, r.http() as http:
        first, second = await ask(http, path, body), await ask(http, path, body)
        assert (is_hit(first), is_hit(second)) == (False, True)
        assert comparable(first) == comparable(second)
        assert len(r.scheduler().submits) == (2 if path == "/v1/batch" else 1)
        assert r.manager.gate.n_active == 0


async def test_a_stream_and_a_whole_answer_share_what_is_kept() -> None:
    async with rig(answer_cache="exact") as r, r.http() as http:
        whole = await ask(http, "/v1/completions", {**ASKED["/v1/completions"], "user": "me"})
        stream = await ask(http, "/v1/completions", {**ASKED["/v1/completions"], "stream": True, "priority": 3})
        assert is_hit(stream)
        texts = re.findall(r'"text": ?"((?:[^"\\]|\\.)*)"', stream.text)
        assert "".join(texts) == re.findall(r'"text": ?"((?:[^"\\]|\\.)*)"', whole.text)[0]
        assert len(r.scheduler().submits) == 1


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        ({"stop": ["zzz"]}, True),
        ({"temperature": 0.7, "seed": 3, "n": 2}, True),
        ({"temperature": 0.7}, False),
        ({"logprobs": 1}, False),
    ],
)
async def test_answers_that_would_be_the_same_again_are_kept(changes: dict[str, Any], is_kept: bool) -> None:
    body = {**ASKED["/v1/completions"], **changes}
    async with rig(answer_cache="exact") as r, r.http() as http:
        first, second = await ask(http, "/v1/completions", body), await ask(http, "/v1/completions", body)
        assert (is_hit(first), is_hit(second)) == (False, is_kept)
        if is_kept:
            assert comparable(first) == comparable(second)


async def test_a_client_can_refuse_the_cache() -> None:
    body = ASKED["/v1/generate"]
    async with rig(answer_cache="exact") as r, r.http() as http:
        assert not is_hit(await ask(http, "/v1/generate", body, cache_control="no-store"))
        assert not is_hit(await ask(http, "/v1/generate", body))  # nothing was kept
        assert not is_hit(await ask(http, "/v1/generate", body, cache_control="no-cache"))
        assert is_hit(await ask(http, "/v1/generate", body))
        assert len(r.scheduler().submits) == 3


async def test_a_sample_without_a_seed_is_kept_for_clients_that_ask_for_a_kept_answer() -> None:
    body = {**ASKED["/v1/completions"], "temperature": 0.7}
    async with rig(answer_cache="exact") as r, r.http() as http:
        assert not is_hit(await ask(http, "/v1/completions", body)), "nobody has asked for it, and it is not kept"
        first = await ask(http, "/v1/completions", body, cache_control="max-age=600")
        found = await ask(http, "/v1/completions", body, cache_control="max-age=600")
        assert (is_hit(first), is_hit(found)) == (False, True)
        assert comparable(first) == comparable(found)
        assert not is_hit(await ask(http, "/v1/completions", body)), "others get samples of their own"
        assert len(r.scheduler().submits) == 3


async def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    async with rig() as r, r.http() as http:
        for _ in range(2):
            assert not is_hit(await ask(http, "/v1/generate", ASKED["/v1/generate"]))
        assert r.manager.equals.kept is None
        assert "answer_cache" not in (await r.gateway.exposition()).decode()


async def test_the_figures_of_the_cache() -> None:
    async with rig(answer_cache="exact") as r, r.http() as http:
        for _ in range(3):
            await ask(http, "/v1/generate", ASKED["/v1/generate"])
        found = r.gateway.statistics()
        assert [found[name] for name in ("answer_hits", "answer_misses", "answers_kept", "answer_tokens")] == [2, 1, 1, 12]
        text = (await r.gateway.exposition()).decode()
        assert re.search(r'tardigrade_answer_cache_lookups_total\{[^}]*result="hit"[^}]*\} 2', text)


async def restart_gateway(r: Rig) -> None:
    await written(r.gateway.journal)
    await r.kill_gateway()
    r.scheduler().running.clear()
    await r.start_gateway(2)


async def test_an_answer_from_the_cache_survives_its_gateway(tmp_path: Path) -> None:
    """It is recorded like any other, and the next gateway, which has no cache yet, shows the same."""
    async with rig(answer_cache="exact", journal_path=str(tmp_path / "journal-0")) as r:
        body = {**ASKED["/v1/completions"], "stream": True}
        async with r.http() as http:
            await ask(http, "/v1/completions", body)
            hit = await ask(http, "/v1/completions", body, idempotency_key="mine")
            assert is_hit(hit)
        await restart_gateway(r)
        async with r.http() as http:
            again = await ask(http, "/v1/completions", body, idempotency_key="mine")
            assert (again.content, is_hit(again)) == (hit.content, True)
            fresh = await ask(http, "/v1/generate", ASKED["/v1/generate"])
            assert (fresh.json()["tokens"], is_hit(fresh)) == (oracle([1, 2], 6), False)


@pytest.mark.parametrize("share", [1.0, 0.25])
async def test_answers_of_a_tenant_take_no_more_than_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    policy = TenantPolicy(cache_share=share)
    async with limited_rig(tmp_path, monkeypatch, policy, answer_cache="exact", answer_cache_bytes=20_000) as limited:
        async with limited.rig.http() as http:
            await ask(http, "/v1/completions", ASKED["/v1/completions"], authorization=limited.admin["Authorization"])
        async with limited.http() as http:
            for number in range(40):
                await ask(http, "/v1/completions", {**ASKED["/v1/completions"], "prompt": f"no {number}"})
        kept = limited.rig.manager.equals.kept
        assert kept is not None
        assert (kept.n_evicted > 0, kept.n_share_evicted > 0) == (True, share < 1.0)
        async with limited.rig.http() as http:
            headers = {"authorization": limited.admin["Authorization"]}
            again = await ask(http, "/v1/completions", ASKED["/v1/completions"], **headers)
        assert is_hit(again) == (share < 1.0), "the flood of one has pushed out the answer of another"


def _is_told(r: Rig) -> list[str]:
    """From now on, the kinds of what the journal is told."""
    told, honest = list[str](), r.gateway.journal._put

    def put(entry: PendingFrame) -> None:
        told.append("nothing" if entry.kind is None else entry.kind.name)
        honest(entry)

    r.gateway.journal._put = put
    return told


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/generate", "/v1/messages"])
async def test_a_whole_answer_that_is_kept_waits_for_no_journal(path: str) -> None:
    body = {**ASKED[path], **OPTIONS[path][0]}
    async with rig(answer_cache="exact") as r, r.http() as http:
        first = await ask(http, path, body)
        told = _is_told(r)
        second = await ask(http, path, body)
        assert is_hit(second)
        assert comparable(first) == comparable(second)
        assert told == []
        assert r.manager.unfinished.all == []
        assert r.manager.gate.n_active == 0


@pytest.mark.parametrize(
    ("changes", "headers"),
    [
        ({"stream": True}, {}),
        ({}, {"idempotency_key": "mine"}),
        ({"echo": True}, {}),
    ],
    ids=["a stream", "a key", "a body of more turns"],
)
async def test_what_may_outlive_its_gateway_is_in_the_journal_first(changes: dict[str, Any], headers: dict[str, str]) -> None:
    body = ASKED["/v1/completions"]
    async with rig(answer_cache="exact") as r, r.http() as http:
        await ask(http, "/v1/completions", body)
        told = _is_told(r)
        assert is_hit(await ask(http, "/v1/completions", {**body, **changes}, **headers))
        assert told[0] == "REQUEST"


async def test_a_kept_answer_of_a_batch_is_in_the_journal_until_all_are_there() -> None:
    one, other = ({"tokens": [number, 2, 3], "max_tokens": 12, "temperature": 0} for number in (1, 9))
    async with rig(answer_cache="exact") as r, r.http() as http:
        await ask(http, "/v1/batch", {"requests": [one]})
        told = _is_told(r)
        await ask(http, "/v1/batch", {"requests": [one, other]})
        assert told.count("REQUEST") == 2


async def test_the_time_of_hits_inside_the_gateway_is_measured() -> None:
    body = ASKED["/v1/completions"]
    async with rig(answer_cache="exact") as r, r.http() as http:
        for changes in ({}, {}, {"stream": True}):
            await ask(http, "/v1/completions", {**body, **changes})
        text = (await r.gateway.exposition()).decode()
        assert re.search(r"tardigrade_answer_hit_seconds_count\{[^}]*\} 2", text)
        assert r.gateway.statistics()["answer_hit_p99_ms"] > 0
