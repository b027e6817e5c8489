"""The OpenAI routes over a scripted scheduler: every token shown is the oracle's."""

from __future__ import annotations

import json

import pytest

from messages.ids import seed_of
from tests.support.answers.short_bodies import BODIES
from tests.support.gateway.fake_scheduler import ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import rig
from tests.support.memory_cluster import ScriptedActor


def events_of(text: str) -> list[dict]:
    """The JSON of each server-sent event; the last one is [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_completion_whole() -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post("/v1/completions", json={"prompt": "hello", "max_tokens": 5, "temperature": 0})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["choices"][0]["text"] == ids_text(oracle(text_ids("hello"), 5))
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["prompt_tokens"] == 5
        assert body["usage"]["completion_tokens"] == 5


async def test_chat_stream() -> None:
    async with rig() as r, r.http() as http:
        question = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0, "stream": True}
        answer = await http.post("/v1/chat/completions", json={**question, "stream_options": {"include_usage": True}})
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = events_of(answer.text)
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])
        assert text == ids_text(oracle(text_ids("user: hi\nassistant: "), 4))
        assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]][-1] == "length"
        assert events[-1]["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [False, True])
async def test_n_and_several_prompts(stream: bool) -> None:
    async with rig() as r, r.http() as http:
        prompts = [[1, 2, 3], [4, 5]]
        question = {"prompt": prompts, "n": 2, "max_tokens": 3, "temperature": 0, "stream": stream}
        answer = await http.post("/v1/completions", json=question)
        assert answer.status_code == 200, answer.text
        texts = dict.fromkeys(range(4), "")
        choices = answer.json()["choices"] if not stream else [c for e in events_of(answer.text) for c in e["choices"]]
        for choice in choices:
            texts[choice["index"]] += choice["text"]
        assert [texts[i] for i in range(4)] == [ids_text(oracle(prompts[i // 2], 3)) for i in range(4)]


async def test_sampled_sequences_of_one_request_differ() -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post("/v1/completions", json={"prompt": [7], "n": 3, "max_tokens": 4, "seed": 5})
        texts = [choice["text"] for choice in answer.json()["choices"]]
        assert texts[0] == ids_text(oracle([7], 4, seed=5))
        assert len(set(texts)) == 3


async def test_stop_string_ends_and_is_not_shown() -> None:
    async with rig() as r, r.http() as http:
        ids = oracle([9], 10)
        stop = f"{ids[3]} {ids[4]}"
        question = {"prompt": [9], "max_tokens": 10, "temperature": 0, "stop": stop}
        answer = (await http.post("/v1/completions", json=question)).json()
        assert answer["choices"][0]["text"] == ids_text(ids[:3])
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 5
        scheduler = r.scheduler()
        await r.cluster.wait_until(lambda: [c.why for c in scheduler.cancels] == ["stop_string"])


async def test_generate_and_batch() -> None:
    async with rig() as r, r.http() as http:
        one = (await http.post("/v1/generate", json={"tokens": [3, 4], "max_tokens": 6, "temperature": 0})).json()
        assert one["tokens"] == oracle([3, 4], 6)
        assert one["tokens_per_second"] == one["throughput_tokens_per_sec"] > 0
        assert one["token_ids"] == one["tokens"]
        assert (one["prompt_tokens"], one["generated_tokens"]) == (one["n_prompt"], one["n_generated"])
        assert one["latency_ms"] == pytest.approx(one["latency_s"] * 1e3)
        assert one["latency_s"] > 0
        body = {"prompts": ["a", "bc"], "max_tokens": 2, "temperature": 0}
        many = (await http.post("/v1/batch", json=body)).json()
        assert [m["tokens"] for m in many["results"]] == [oracle([97], 2), oracle([98, 99], 2)]


async def test_generate_is_idempotent_by_request_id() -> None:
    async with rig() as r, r.http() as http:
        body = {"tokens": [3, 4], "max_tokens": 6, "request_id": "mine"}
        first = (await http.post("/v1/generate", json=body)).json()
        again = (await http.post("/v1/generate", json=body)).json()
        assert again["tokens"] == first["tokens"]
        assert len(r.scheduler().submits) == 1
        other = await http.post("/v1/generate", json={**body, "max_tokens": 7})
        assert other.status_code == 409


SAMPLED = {"max_tokens": 8, "temperature": 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/generate", {"tokens": [3], **SAMPLED}),
        ("/v1/batch", {"tokens": [[3], [4]], **SAMPLED}),
        ("/v1/completions", {"prompt": [3], "n": 2, **SAMPLED}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], **SAMPLED}),
    ],
)
async def test_two_gateways_give_the_same_tokens_to_the_same_key(path: str, body: dict) -> None:
    seeds: list[list[int]] = []
    for name in ("mine", "mine", "other", ""):  # each gateway is a new one and knows no request
        async with rig() as r, r.http() as http:
            answer = await http.post(path, json=body, headers={"Idempotency-Key": name} if name else {})
            assert answer.status_code == 200, answer.text
            seeds.append([submit.sampling.seed for submit in r.scheduler().submits])
    assert seeds[0] == seeds[1]
    assert len({tuple(one) for one in seeds}) == 3


async def test_a_request_id_in_the_body_gives_the_seed_unless_the_client_does() -> None:
    async with rig() as r, r.http() as http:
        body = {"tokens": [3], "max_tokens": 2}
        await http.post("/v1/generate", json={**body, "request_id": "mine"}, headers={"Idempotency-Key": "not this"})
        await http.post("/v1/generate", json={**body, "request_id": "other", "seed": 5})
        assert [submit.sampling.seed for submit in r.scheduler().submits] == [seed_of("mine"), 5]


@pytest.mark.parametrize("request_id", ["a", "a b~!", "x" * 256])
async def test_ids_of_clients_come_back_in_a_header(request_id: str) -> None:
    async with rig() as r, r.http() as http:
        body = {"tokens": [3], "max_tokens": 2, "request_id": request_id}
        assert (await http.post("/v1/generate", json=body)).headers["x-request-id"] == request_id
        for stream, name in ((True, "/" + request_id[1:]), (False, "." + request_id[1:])):
            body = {"prompt": [3], "max_tokens": 2, "stream": stream}
            for header in ("Idempotency-Key", "X-Request-Id"):
                answer = await http.post("/v1/completions", json=body, headers={header: name})
                assert (answer.status_code, answer.headers["x-request-id"]) == (200, name)


async def test_a_header_that_is_no_request_id_is_ignored() -> None:
    async with rig() as r, r.http() as http:
        for given in (b"a\xe9", b"x" * 257):
            answer = await http.post("/v1/completions", json={"prompt": [3], "max_tokens": 2}, headers={b"X-Request-Id": given})
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-request-id"].startswith("cmpl-")


async def test_logprobs_in_both_shapes() -> None:
    async with rig() as r, r.http() as http:
        question = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "temperature": 0}
        chat = await http.post("/v1/chat/completions", json={**question, "logprobs": True, "top_logprobs": 2})
        content = chat.json()["choices"][0]["logprobs"]["content"]
        ids = oracle(text_ids("user: x\nassistant: "), 3)
        assert [entry["token"] for entry in content] == [f"{i} " for i in ids]
        assert len(content[0]["top_logprobs"]) == 2
        plain = await http.post("/v1/completions", json={"prompt": [1], "max_tokens": 3, "logprobs": 1, "temperature": 0})
        logprobs = plain.json()["choices"][0]["logprobs"]
        assert logprobs["tokens"] == [f"{i} " for i in oracle([1], 3)]
        assert len(logprobs["text_offset"]) == 3


async def test_a_model_may_have_the_tag_that_lists_give_it_in_every_api() -> None:
    async with rig() as r, r.http() as http:
        for path, body in BODIES.items():
            assert (await http.post(path, json={**body, "model": "hash-chain:latest"})).status_code == 200, path
            assert (await http.post(path, json={**body, "model": "hash-chain:8b"})).status_code == 404, path
        assert (await http.get("/v1/models/hash-chain:latest")).json()["id"] == "hash-chain"


async def test_models_health_and_metrics() -> None:
    async with rig() as r, r.http() as http:
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "hash-chain"
        assert (await http.get("/v1/models/")).json()["object"] == "list"
        assert (await http.get("/v1/models/hash-chain")).status_code == 200
        assert (await http.get("/v1/models/other")).json()["error"]["code"] == "model_not_found"
        assert (await http.get("/v1/health")).status_code == 200
        await r.cluster.kill("worker/0.0")
        await r.cluster.wait_until(lambda: not r.gateway.living("worker"))
        assert (await http.get("/v1/health")).status_code == 503
        r.cluster.introduce(ScriptedActor(r.cluster, "worker/0.0", 2))
        await r.cluster.wait_until(lambda: bool(r.gateway.living("worker")))
        assert (await http.get("/v1/health")).status_code == 200
        await r.cluster.kill("scheduler/0")
        await r.cluster.wait_until(lambda: not r.gateway.living("scheduler"))
        assert (await http.get("/v1/health")).status_code == 503
