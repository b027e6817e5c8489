"""Log probabilities of prompts over HTTP: `echo`, `prompt_logprobs`, token ids; whoever dies while they are computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_workers.hash_chain import prompt_logprobs
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.whole_server import WORKER, start_scheduler, whole_server
from tests.support.memory_cluster import Gang
from tests.support.metric_values import metric_value
from tests.support.waiting import DEADLINE_S

PROMPT = [(7 * i) % 500 for i in range(200)]  # four chunks
SCORES = prompt_logprobs(PROMPT)


async def completion(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 3, "temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def events(http: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    body = {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "stream": True} | fields
    text = (await http.post("/v1/completions", json=body)).text
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: {")]
    return [json.loads(line)["choices"][0] for line in lines]


async def test_echo_with_logprobs_of_ids() -> None:
    async with whole_server() as (r, _), r.http() as http:
        body = await completion(http, echo=True, logprobs=2)
        choice, generated = body["choices"][0], oracle(PROMPT, 3)
        assert choice["text"] == ids_text([*PROMPT, *generated])
        logprobs = choice["logprobs"]
        assert logprobs["tokens"] == [f"{i} " for i in (*PROMPT, *generated)]
        assert logprobs["token_logprobs"] == [None, *SCORES, 0.0, 0.0, 0.0]
        assert logprobs["top_logprobs"][0] is None
        shown = list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True))[1:]
        assert all(top[token] == logprob and len(top) in (2, 3) for token, logprob, top in shown)
        assert [len(top) for *_, top in shown[-3:]] == [2, 2, 2]  # the likeliest token was chosen
        assert all(choice["text"][o:].startswith(t) for o, t in zip(logprobs["text_offset"], logprobs["tokens"], strict=True))
        assert body["usage"]["completion_tokens"] == 3
        streamed = await events(http, echo=True, logprobs=2)
        assert "".join(event["text"] for event in streamed) == choice["text"]
        for name, values in logprobs.items():
            assert [v for event in streamed if event["logprobs"] for v in event["logprobs"][name]] == values


async def test_a_prompt_alone() -> None:
    async with whole_server() as (r, _), r.http() as http:
        body = await completion(http, echo=True, logprobs=1, max_tokens=0)
        choice = body["choices"][0]
        assert choice["text"] == ids_text(PROMPT)
        assert choice["logprobs"]["token_logprobs"] == [None, *SCORES]
        assert choice["finish_reason"] == "length"
        assert body["usage"]["completion_tokens"] == 0
        streamed = await events(http, echo=True, logprobs=1, max_tokens=0)
        assert streamed[0]["logprobs"] == choice["logprobs"]
        assert "".join(event["text"] for event in streamed) == choice["text"]
        one = (await completion(http, prompt=[5], echo=True, logprobs=1, max_tokens=0))["choices"][0]
        assert one["logprobs"] == {"tokens": ["5 "], "token_logprobs": [None], "top_logprobs": [None], "text_offset": [0]}
        nothing = await completion(http, max_tokens=0)
        assert nothing["choices"][0]["text"] == ""


async def test_the_text_of_a_prompt_is_repeated_as_it_was_sent() -> None:
    async with whole_server() as (r, _), r.http() as http:
        body = await completion(http, prompt=["hello", "a b"], echo=True, logprobs=0, max_tokens=0, n=2)
        assert [choice["text"] for choice in body["choices"]] == ["hello", "hello", "a b", "a b"]
        scores = [None, *prompt_logprobs(list(b"a b"))]
        assert [choice["logprobs"]["token_logprobs"] for choice in body["choices"][2:]] == [scores, scores]


async def test_vllms_form_and_token_ids() -> None:
    async with whole_server() as (r, _), r.http() as http:
        choice = (await completion(http, prompt_logprobs=2, return_token_ids=True))["choices"][0]
        places = choice["prompt_logprobs"]
        assert places[0] is None
        assert [place[str(token)]["logprob"] for place, token in zip(places[1:], PROMPT[1:], strict=True)] == SCORES
        assert all(len(place) in (2, 3) for place in places[1:])
        assert set(places[1][str(PROMPT[1])]) == {"logprob", "rank", "decoded_token"}
        assert choice["prompt_token_ids"] == PROMPT
        assert choice["token_ids"] == oracle(PROMPT, 3)
        assert choice["logprobs"] is None
        streamed = await events(http, return_token_ids=True)
        assert streamed[0]["prompt_token_ids"] == PROMPT
        assert [i for event in streamed for i in event["token_ids"]] == oracle(PROMPT, 3)
        chat: Any = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "return_token_ids": True}
        body = (await http.post("/v1/chat/completions", json=chat | {"prompt_logprobs": 0})).json()
        ids = body["prompt_token_ids"]
        assert [place[str(token)]["logprob"] for place, token in zip(body["prompt_logprobs"][1:], ids[1:], strict=True)] == (
            prompt_logprobs(ids)
        )
        assert len(body["choices"][0]["token_ids"]) == 2
        text = (await http.post("/v1/chat/completions", json=chat | {"stream": True})).text
        lines = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
        assert lines[0]["prompt_token_ids"] == ids
        assert sum(len(line["choices"][0].get("token_ids", [])) for line in lines) == 2


async def test_what_is_cached_is_computed_again_and_may_be_reused() -> None:
    async with whole_server() as (r, _), r.http() as http:
        for n_cached, fields in ((0, {}), (192, {}), (0, {"echo": True, "logprobs": 0}), (192, {})):
            body = await completion(http, **fields)
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == n_cached
            if fields:
                assert body["choices"][0]["logprobs"]["token_logprobs"][:200] == [None, *SCORES]


async def test_what_is_too_much_is_refused() -> None:
    async with whole_server() as (r, _), r.http() as http:
        for fields in ({"prompt_logprobs": 21}, {"prompt_logprobs": -1}, {"prompt_logprobs": True}):
            answer = await http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1} | fields)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == "prompt_logprobs"


async def kill_scheduler(r: Rig, gang: Gang) -> None:
    await r.cluster.kill("scheduler/0")
    await start_scheduler(r, 2)


async def kill_gang(r: Rig, gang: Gang) -> None:
    await r.cluster.kill("worker/0.0")
    r.cluster.introduce(Gang(r.cluster, WORKER, 2, before=gang))  # its memory is kept


async def kill_gang_and_memory(r: Rig, gang: Gang) -> None:
    await r.cluster.kill("worker/0.0")
    r.cluster.introduce(Gang(r.cluster, WORKER, 2))


@pytest.mark.parametrize("kill", [kill_scheduler, kill_gang, kill_gang_and_memory])
async def test_a_death_in_the_middle_of_a_prompt(kill: Callable[[Rig, Gang], Awaitable[None]]) -> None:
    async with whole_server() as (r, gang), r.http() as http:
        waiting = asyncio.ensure_future(completion(http, echo=True, logprobs=0))
        await r.cluster.wait_until(lambda: len(gang.plans) >= 2)
        await kill(r, gang)
        async with asyncio.timeout(DEADLINE_S):
            body = await waiting
        assert body["choices"][0]["logprobs"]["token_logprobs"] == [None, *SCORES, 0.0, 0.0, 0.0]


async def test_another_gateway_goes_on_with_what_the_journal_has(tmp_path: Path) -> None:
    fields: Any = {"prompt": PROMPT, "max_tokens": 200, "temperature": 0, "echo": True, "logprobs": 1, "stream": True}
    async with whole_server(journal_path=str(tmp_path / "journal")) as (r, gang):
        async with r.http() as http:
            headers = {"Idempotency-Key": "mine"}
            lost = asyncio.ensure_future(http.post("/v1/completions", json=fields, headers=headers))
            await r.cluster.wait_until(lambda: metric_value(r.gateway.metrics.output_tokens) >= 5)
            gang.hold()
            lost.cancel()
        n_plans = len(gang.plans)
        await r.kill_gateway()
        await r.start_gateway(2)
        gang.release_held()
        async with r.http() as http:
            found = (await http.post("/v1/completions", json=fields, headers=headers)).text
            fresh = (await http.post("/v1/completions", json=fields)).text
        again = [new for plan in gang.plans[n_plans:] for new in plan.new if new.n_tokens > len(PROMPT)]
        assert all(new.prompt_logprobs == -1 for new in again)
        assert _choices(found) == _choices(fresh)


def _choices(text: str) -> list[Any]:
    return [json.loads(line[6:])["choices"] for line in text.split("\n") if line.startswith("data: {")]
