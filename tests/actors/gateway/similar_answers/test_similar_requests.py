"""A gateway that gives kept answers to similar questions, with a real directory and an embedder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors.pages.forgetting import Forgetting
from tests.support.answers.directory import add_directory
from tests.support.answers.equal_requests import finish
from tests.support.answers.similar_rig import chat, is_kept, similar_rig
from tests.support.embedding.embedders import HeldEmbedder


async def test_a_similar_question_gets_the_kept_answer(tmp_path: Path) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        first = await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        second = await chat(http, "what are tardigrades")
        stream = await chat(http, "say what tardigrades are", stream=True)
        assert "x-cache" not in first.headers
        for answer in (second, stream):
            assert answer.headers["x-cache"] == "semantic"
            assert 0.0 < float(answer.headers["x-cache-similarity"]) <= 1.0
        assert second.json()["choices"] == first.json()["choices"]
        assert len(r.scheduler().submits) == 1
        assert r.manager.gate.n_active == 0


async def test_an_equal_request_comes_first_and_needs_no_vector(tmp_path: Path) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        again = await chat(http, "what is a tardigrade")
        assert again.headers["x-cache"] == "hit"
        assert "x-cache-similarity" not in again.headers
        assert directory.statistics()["similar_misses"] == 1


async def test_the_similar_answer_is_not_kept_as_that_of_an_equal_request(tmp_path: Path) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        for _ in range(2):
            assert (await chat(http, "what are tardigrades")).headers["x-cache"] == "semantic"
        assert r.gateway.statistics()["answers_kept"] == 1


async def test_a_threshold_decides(tmp_path: Path) -> None:
    async with similar_rig(tmp_path, semantic_threshold=1.0) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        assert "x-cache" not in (await chat(http, "why")).headers


async def test_callers_have_thresholds_and_answers_of_their_own(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"caller_header": "x-tenant", "semantic_thresholds": {"strict": 1.0}}
    async with similar_rig(tmp_path, **settings) as (r, http, directory):
        for n_answers, tenant in enumerate(("strict", "easy"), start=1):
            answer = await chat(http, "what is a tardigrade", headers={"x-tenant": tenant})
            assert "x-cache" not in answer.headers  # nothing of the other tenant
            await is_kept(r, directory, n_answers)
        found = [(await chat(http, "why", headers={"x-tenant": tenant})).headers for tenant in ("strict", "easy")]
        assert ["x-cache" in headers for headers in found] == [False, True]


@pytest.mark.parametrize(("control", "n_kept"), [("no-store", 1), ("no-cache", 2)])
async def test_a_client_can_refuse_the_cache(tmp_path: Path, control: str, n_kept: int) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        answer = await chat(http, "what are tardigrades", headers={"cache-control": control})
        assert "x-cache" not in answer.headers
        await is_kept(r, directory, n_kept)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.5},
        {"n": 2},
        {"logprobs": True},
        {"messages": [{"role": role, "content": "hi"} for role in ("user", "assistant", "user")]},
        {"messages": [{"role": "user", "content": "word " * 30}]},  # more tokens than the embedding model takes
    ],
)
async def test_other_requests_are_computed(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        assert "x-cache" not in (await chat(http, "what are tardigrades", **fields)).headers


async def test_without_a_directory_or_an_embedder_requests_are_computed(tmp_path: Path) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        await directory.stop()
        await r.cluster.kill("cache_directory/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("cache_directory"))
        assert "x-cache" not in (await chat(http, "what are tardigrades")).headers
        second = await add_directory(r, tmp_path, 2)  # it goes on with the file
        await is_kept(r, second, 1)
        assert (await chat(http, "what are water bears")).headers["x-cache"] == "semantic"
        await r.cluster.kill("embedder/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("embedder"))
        assert "x-cache" not in (await chat(http, "who is a tardigrade")).headers


async def test_a_directory_that_does_not_answer_delays_a_request_no_longer_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with similar_rig(tmp_path, semantic_wait_s=0.01) as (r, http, directory):
        monkeypatch.setattr(directory, "_send_hint", lambda name, message: None)
        assert "x-cache" not in (await chat(http, "what are tardigrades")).headers
        results = r.gateway.registry.get_sample_value("tardigrade_similar_requests_total", {"result": "late"})
        assert results == 1
        assert not r.gateway.similar_queries._open


async def test_a_vector_that_is_late_serves_the_next_question(tmp_path: Path) -> None:
    async with similar_rig(tmp_path, semantic_wait_s=0.01) as (r, http, directory):
        await r.cluster.kill("embedder/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("embedder"))
        held = HeldEmbedder(r.cluster, 2)
        r.cluster.introduce(held)
        await r.cluster.wait_until(lambda: bool(r.gateway.living("embedder")))
        r.scheduler().is_automatic = False
        asked = asyncio.ensure_future(chat(http, "what is a tardigrade"))
        await r.cluster.wait_until(lambda: bool(r.scheduler().submits))  # after the deadline
        held.answer()
        similar = r.manager.equals.similar
        assert similar is not None
        await r.cluster.wait_until(lambda: not similar.n_open)
        await finish(r, r.scheduler())
        assert "x-cache" not in (await asked).headers
        await is_kept(r, directory, 1)


async def test_a_reset_forgets_similar_answers(tmp_path: Path) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        done = await r.gateway.caches.forget(Forgetting())
        assert done.answers == 2  # the same, at the gateway and at the directory
        assert "x-cache" not in (await chat(http, "what are tardigrades")).headers


async def test_nothing_of_this_is_sent_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with similar_rig(tmp_path, answer_cache="exact") as (_, http, directory):
        for text in ("what is a tardigrade", "what are tardigrades"):
            assert "x-cache" not in (await chat(http, text)).headers
        assert directory.statistics()["similar_misses"] == 0


async def test_a_reset_reaches_the_next_directory_and_its_file(tmp_path: Path) -> None:
    async with similar_rig(tmp_path) as (r, http, directory):
        await chat(http, "what is a tardigrade")
        await is_kept(r, directory, 1)
        await directory.stop()
        await r.cluster.kill("cache_directory/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("cache_directory"))
        reset = asyncio.ensure_future(r.gateway.caches.forget(Forgetting()))
        second = await add_directory(r, tmp_path, 2)
        assert (await reset).answers == 2
        assert second.statistics()["similar_answers"] == 0
        assert "x-cache" not in (await chat(http, "what are tardigrades")).headers
