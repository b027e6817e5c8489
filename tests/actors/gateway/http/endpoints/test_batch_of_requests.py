"""POST /v1/batch with full requests: each has fields of its own, one that is wrong refuses all, and a gateway's death none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from actors.gateway.http.answers.stream_bytes import Begun
from actors.gateway.http.batch_requests import members_of
from actors.gateway.http.endpoints.rebuilt import rebuild_response
from actors.gateway.text.models.folder_text import FolderText
from tests.support.answers.calling_server import calling_server
from tests.support.gateway.fake_scheduler import ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import next_turn

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
BOTH = ("n_prompt", "prompt_tokens"), ("n_generated", "generated_tokens"), ("tokens", "token_ids")


async def test_each_request_has_fields_of_its_own() -> None:
    async with rig() as r, r.http() as http:
        one = {"prompt": "hello", "max_tokens": 4, "priority": -5}
        two = {"tokens": [1, 2], "max_tokens": 6, "temperature": 1.0, "seed": 9, "stop_token_ids": [3]}
        three = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "stop": "no such text"}
        body = (await http.post("/v1/batch", json={"requests": [one, two, three], "temperature": 0.0})).json()
        expected = [oracle(text_ids("hello"), 4), oracle([1, 2], 6, 9), oracle(text_ids("user: hi\nassistant: "), 3)]
        results = body["results"]
        assert [result["token_ids"] for result in results] == expected
        assert [result["text"] for result in results] == [ids_text(tokens) for tokens in expected]
        assert [result["index"] for result in results] == [0, 1, 2]
        assert all(result[old] == result[new] for result in results for old, new in BOTH)
        assert all(result["latency_ms"] > 0 < result["throughput_tokens_per_sec"] for result in results)
        assert body["total_latency_ms"] >= max(result["latency_ms"] for result in results)
        assert body["batch_throughput_tokens_per_sec"] > 0
        submits = r.scheduler().submits
        assert [submit.terms.priority for submit in submits] == [-5, 0, 0]
        assert [submit.sampling.temperature for submit in submits] == [0.0, 1.0, 0.0], "what the batch says is the default"


async def test_several_answers_and_log_probabilities_are_those_of_the_requests_alone() -> None:
    prompt = {"prompt": "hello", "max_tokens": 4, "n": 3, "seed": 9, "logprobs": 2}
    chat = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 4,
        "n": 2,
        "seed": 9,
        "logprobs": True,
        "top_logprobs": 1,
    }
    async with rig() as r, r.http() as http:
        body = {"requests": [prompt, chat, {"prompt": "x", "max_tokens": 2}]}
        results = (await http.post("/v1/batch", json=body)).json()["results"]
        alone = (await http.post("/v1/completions", json=prompt)).json()["choices"]
        chat_alone = (await http.post("/v1/chat/completions", json=chat)).json()["choices"]
    for result, choices in zip(results, (alone, chat_alone), strict=False):
        assert [choice["index"] for choice in result["choices"]] == [choice["index"] for choice in choices]
        assert [most_probable(choice) for choice in result["choices"]] == [most_probable(choice) for choice in choices]
        assert [choice["finish_reason"] for choice in result["choices"]] == ["length"] * len(choices)
        first = result["choices"][0]
        assert all(result[name] == first[name] for name in ("text", "token_ids", "tokens", "logprobs"))
    assert [choice["text"] for choice in results[0]["choices"]] == [choice["text"] for choice in alone]
    assert [choice["text"] for choice in results[1]["choices"]] == [choice["message"]["content"] for choice in chat_alone]
    assert not {"choices", "logprobs"} & results[2].keys()


def most_probable(choice: dict[str, Any]) -> list[Any]:
    """The most probable tokens at each place of an answer, in the form of its API."""
    logprobs = choice["logprobs"]
    return [entry["top_logprobs"] for entry in logprobs["content"]] if "content" in logprobs else logprobs["top_logprobs"]


async def test_calls_and_reasoning_of_a_chat_in_a_batch(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    chat = {"messages": [{"role": "user", "content": "Paris?"}], "tools": TOOLS}
    async with calling_server(smollm2_text_folder, smollm2_text) as r, r.http() as http:
        (result,) = (await http.post("/v1/batch", json={"requests": [chat]})).json()["results"]
    message = result["message"]
    assert message["reasoning_content"] == "I wonder."
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}


async def test_all_of_a_batch_is_there_after_a_restart_though_nobody_has_named_it(tmp_path: Path) -> None:
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            lost = asyncio.ensure_future(http.post("/v1/batch", json={"requests": [{"prompt": "ab"}, {"prompt": "cd"}]}))
            await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
            await r.kill_gateway()
            lost.cancel()
        await r.start_gateway(2)
        first = r.manager.find(scheduler.submits[0].request)
        assert first is not None
        assert len(members_of(first, r.manager.find) or ()) == 2


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"prompt": "x", "temperature": -1}, "requests[1].temperature"),
        ({"prompt": "x", "max_tokens": 10**6}, "requests[1].max_tokens"),
        ({"prompt": "x", "response_format": {"type": "yaml"}}, "requests[1].response_format"),
        ({"messages": [{"role": "robot"}]}, "requests[1].messages[0].role"),
        ({}, "requests[1].prompt"),
        ({"prompt": "x", "n": 0}, "requests[1].n"),
        ({"prompt": "x", "stream": True}, "requests[1].stream"),
        ({"prompt": "x", "model": "other"}, "requests[1].model"),
        ({"tokens": [40_000]}, "requests[1].tokens"),
        ({"prompt": "x", "logprobs": 21}, "requests[1].logprobs"),
        ({"messages": [{"role": "user", "content": "x"}], "stream": True}, "requests[1].stream"),
        ({"messages": [{"role": "user", "content": "x"}], "prompt_logprobs": 0}, "requests[1].prompt_logprobs"),
    ],
)
async def test_one_wrong_request_refuses_all_by_name(wrong: dict[str, Any], field: str) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post("/v1/batch", json={"requests": [{"prompt": "x", "max_tokens": 2}, wrong]})
        error = answer.json()["error"]
        assert (answer.status_code // 100, error["param"]) == (4, field)
        assert error["message"].startswith(field)
        assert not r.scheduler().submits, "nothing is computed"
        assert (await http.post("/v1/batch", json={"requests": []})).json()["error"]["param"] == "requests"
        both = {"requests": [{"prompt": "x"}], "prompts": ["x"]}
        assert (await http.post("/v1/batch", json=both)).json()["error"]["param"] == "requests"
        right = {"requests": [{"prompt": "x", "max_tokens": 2}] * 2}
        assert (await http.post("/v1/batch", json=right)).status_code == 200, "a refusal leaves nothing behind"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (
            "/v1/batch",
            {"requests": [{"custom_id": "a", "url": "/v1/chat/completions", "body": {"messages": []}}]},
            "requests[0].prompt: expected exactly one of prompt, tokens and messages, got none, and the unknown field "
            '"custom_id", "url", "body"',
        ),
        ("/v1/batch", {"max_tokens": 2}, "prompts: expected exactly one of prompts, tokens and requests, got none"),
        (
            "/v1/generate",
            {"inputs": "x"},
            'prompt: expected exactly one of prompt and tokens, got neither, and the unknown field "inputs"',
        ),
        (
            "/tokenize",
            {"text": "x"},
            'prompt: expected exactly one of prompt and messages, got neither, and the unknown field "text"',
        ),
    ],
)
async def test_what_a_client_of_another_server_sends_as_its_prompt_is_named(path: str, body: dict[str, Any], said: str) -> None:
    async with rig() as r, r.http() as http:
        assert (await http.post(path, json=body)).json()["error"]["message"] == said


async def test_a_batch_survives_its_gateway_and_is_computed_once(tmp_path: Path) -> None:
    requests = [{"prompt": "ab", "max_tokens": 5}, {"prompt": "cd", "max_tokens": 8}]
    asked = {"json": {"requests": requests, "temperature": 0}, "headers": {"Idempotency-Key": "mine"}}
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal")) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            lost = asyncio.ensure_future(http.post("/v1/batch", **asked))
            await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
            scheduler.step(3)
            await r.cluster.wait_until(lambda: scheduler.acked == scheduler.sent)
            await r.kill_gateway()
            lost.cancel()
        scheduler.running.clear()
        await r.start_gateway(2)
        async with r.http() as http:
            await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
            again = asyncio.ensure_future(http.post("/v1/batch", **asked))
            while not again.done():
                scheduler.step(1)
                await next_turn()
            results = (await again).json()["results"]
            assert [result["token_ids"] for result in results] == [oracle([97, 98], 5), oracle([99, 100], 8)]
            assert {len(submit.tokens) for submit in scheduler.submits[2:]} == {5}, "both go on after three tokens"
            third = (await http.post("/v1/batch", **asked)).json()["results"]
            assert [result["token_ids"] for result in third] == [result["token_ids"] for result in results]
            assert len(scheduler.submits) == 4
        assert [result["token_ids"] for result in await made_again(r)] == [result["token_ids"] for result in results]


async def made_again(r: Rig) -> list[dict[str, Any]]:
    """The results on the connection that a dead gateway has left."""
    first = r.manager.find("mine")
    assert first is not None
    services: Any = SimpleNamespace(
        manager=r.manager, settings=r.settings, models=r.gateway.models, model_of=lambda _: r.gateway.models.main
    )
    answer = rebuild_response(services, first, "/v1/batch", -1, Begun())
    assert answer is not None
    assert rebuild_response(services, first, "/v1/batch", -1, Begun(n_bytes=500)) is None, "its body says how long it took"
    transport: Any = httpx.ASGITransport(app=answer.app)  # pyright: ignore[reportArgumentType]
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        return (await http.post("/v1/batch")).json()["results"]
