"""What must not be accepted, over HTTP: a clear 4xx in OpenAI's shape that names the field, and the server goes on."""

from __future__ import annotations

import asyncio
import json

import pytest

from messages import generation
from tests.actors.gateway.fake_scheduler import oracle
from tests.actors.gateway.gateway_rig import rig

CHAT, PLAIN, GENERATE, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/generate", "/v1/batch"
HELLO = [{"role": "user", "content": "hi"}]


def chat(**fields: object) -> tuple[str, object]:
    return CHAT, {"messages": HELLO, **fields}


def plain(**fields: object) -> tuple[str, object]:
    return PLAIN, {"prompt": "x", **fields}


REFUSALS: list[tuple[tuple[str, object], int, str | None]] = [
    ((CHAT, b"{"), 400, None),
    ((CHAT, b""), 400, None),
    ((CHAT, b"[1, 2]"), 400, None),
    ((CHAT, b'{"messages": "\xff\xfe"}'), 400, None),
    ((CHAT, b'{"messages": [], "temperature": NaN}'), 400, None),
    ((CHAT, b"[" * 100_000), 400, None),
    ((CHAT, {}), 400, "messages"),
    ((CHAT, {"messages": []}), 400, "messages"),
    ((CHAT, {"messages": "hello"}), 400, "messages"),
    ((CHAT, {"messages": [{"role": "robot", "content": "x"}]}), 400, "messages[0].role"),
    ((CHAT, {"messages": [{"role": "user"}]}), 400, "messages[0].content"),
    ((CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), 400, "messages[0].content[0]"),
    (chat(model="other"), 404, "model"),
    (chat(model=7), 400, "model"),
    (chat(temperature=-1), 400, "temperature"),
    (chat(temperature="hot"), 400, "temperature"),
    (chat(temperature=1e300), 400, "temperature"),
    (chat(top_p=0), 400, "top_p"),
    (chat(top_p=1.5), 400, "top_p"),
    (chat(top_k=-7), 400, "top_k"),
    (chat(presence_penalty=3), 400, "presence_penalty"),
    (chat(frequency_penalty=-3), 400, "frequency_penalty"),
    (chat(repetition_penalty=0), 400, "repetition_penalty"),
    (chat(n=0), 400, "n"),
    (chat(n=100_000), 400, "n"),
    (chat(n=10**30), 400, "n"),
    (chat(seed=2**70), 400, "seed"),
    (chat(max_tokens=0), 400, "max_tokens"),
    (chat(max_tokens=-5), 400, "max_tokens"),
    (chat(max_tokens=10**12), 400, "max_tokens"),
    (chat(max_tokens=1.5), 400, "max_tokens"),
    (chat(max_completion_tokens=10**6), 400, "max_completion_tokens"),
    (chat(stop=[""]), 400, "stop"),
    (chat(stop=["x"] * 17), 400, "stop"),
    (chat(stop=[1]), 400, "stop[0]"),
    (chat(stop_token_ids=[40_000]), 400, "stop_token_ids"),
    (chat(stop_token_ids=list(range(100))), 400, "stop_token_ids"),
    (chat(logprobs=True, top_logprobs=21), 400, "top_logprobs"),
    (chat(top_logprobs=3), 400, "top_logprobs"),
    (chat(tools=[{"type": "function"}]), 400, "tools"),
    (chat(response_format={"type": "json_object"}), 400, "response_format"),
    (chat(logit_bias={"5": 1}), 400, "logit_bias"),
    (chat(nonsense=1), 400, "nonsense"),
    (chat(stream="yes"), 400, "stream"),
    (chat(stream_options={"include_usage": True}), 400, "stream_options"),
    (plain(prompt=""), 400, "prompt"),
    (plain(prompt=[]), 400, "prompt"),
    (plain(prompt=[[]]), 400, "prompt"),
    (plain(prompt=[1, "a"]), 400, "prompt"),
    (plain(prompt=[-1]), 400, "prompt"),
    (plain(prompt=[32_768]), 400, "prompt"),
    (plain(prompt=[2**64]), 400, "prompt"),
    (plain(prompt="x" * 600), 400, "prompt"),
    (plain(prompt=[1] * 600), 400, "prompt"),
    (plain(best_of=3), 400, "best_of"),
    (plain(echo=True, logprobs=1), 400, "echo"),
    (plain(suffix="tail"), 400, "suffix"),
    ((GENERATE, {}), 400, "prompt"),
    ((GENERATE, {"prompt": "x", "tokens": [1]}), 400, "prompt"),
    ((GENERATE, {"tokens": []}), 400, "tokens"),
    ((GENERATE, {"prompt": "x", "stream": True}), 400, "stream"),
    ((GENERATE, {"prompt": "x", "request_id": ""}), 400, "request_id"),
    ((BATCH, {"prompts": []}), 400, "prompts"),
    ((BATCH, {"tokens": [[1], []]}), 400, "tokens"),
]


async def test_every_refusal_names_its_field_and_changes_nothing() -> None:
    async with rig(max_length=512) as r, r.http() as http:
        for (route, body), status, field in REFUSALS:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await http.post(route, content=content)
            case = f"{route} {content[:120]!r}: {answer.text[:300]}"
            assert answer.status_code == status, case
            error = answer.json()["error"]
            assert error["param"] == field, case
            assert error["message"], case
            assert error["type"] == "invalid_request_error", case
            assert answer.headers["x-request-id"], case
        assert not r.house.faults
        assert not r.house.posts["scheduler/0"].submits
        good = await http.post(GENERATE, json={"tokens": [1], "max_tokens": 2, "temperature": 0})
        assert good.json()["tokens"] == oracle([1], 2)


async def test_a_prompt_that_is_too_long_is_told_both_numbers() -> None:
    async with rig(max_length=512) as r, r.http() as http:
        error = (await http.post(PLAIN, json={"prompt": [1] * 600})).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert "512" in error["message"]
        assert "600" in error["message"]


async def test_big_bodies_are_refused_while_they_come() -> None:
    async with rig(max_body_bytes=10_000) as r, r.http() as http:
        declared = await http.post(PLAIN, content=b"x" * 20_000)

        async def parts():
            for _ in range(20):
                yield b"x" * 1000

        streamed = await http.post(PLAIN, content=parts())
        for answer in (declared, streamed):
            assert answer.status_code == 413
            assert "10000" in answer.json()["error"]["message"]


async def test_ten_megabytes_of_text() -> None:
    async with rig(max_length=512) as r, r.http() as http:
        answer = await http.post(PLAIN, json={"prompt": "x" * 10_000_000})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "prompt"


WRONG_WAYS = [("GET", CHAT, 405), ("POST", "/v1/models", 405), ("GET", "/nowhere", 404)]


@pytest.mark.parametrize(("method", "path", "status"), WRONG_WAYS)
async def test_wrong_method_and_unknown_path_in_openais_shape(method: str, path: str, status: int) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.request(method, path)
        assert answer.status_code == status
        assert path in answer.json()["error"]["message"]


async def test_known_fields_at_their_default_are_taken() -> None:
    async with rig() as r, r.http() as http:
        idle = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logit_bias": None, "user": "me"}
        more = {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "parallel_tool_calls": True}
        route, body = chat(max_tokens=1, **idle, **more)
        assert (await http.post(route, json=body)).status_code == 200
        parts = [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, *HELLO]
        assert (await http.post(CHAT, json={"messages": parts, "max_tokens": 1})).status_code == 200


async def test_before_the_first_scheduler_503_afterwards_requests_wait() -> None:
    async with rig(with_scheduler=False) as r, r.http() as http:
        early = await http.post(GENERATE, json={"tokens": [1], "max_tokens": 2})
        assert early.status_code == 503
        assert int(early.headers["retry-after"]) > 0


async def test_too_many_at_once_is_429() -> None:
    async with rig(with_scheduler=False, max_active_requests=2) as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        body = {"tokens": [[1], [2]], "max_tokens": 2, "temperature": 0}
        first = asyncio.ensure_future(http.post(BATCH, json=body))
        await r.house.wait_until(lambda: len(scheduler.running) == 2)
        second = await http.post(GENERATE, json={"tokens": [3]})
        assert second.status_code == 429
        assert second.json()["error"]["type"] == "rate_limit_error"
        assert int(second.headers["retry-after"]) >= 1
        scheduler.step(2)
        assert (await first).status_code == 200


async def test_a_scheduler_that_can_never_run_it_makes_a_400() -> None:
    async with rig() as r, r.http() as http:
        refusal = generation.Refused(attempt=0, code="too_large_for_memory", detail="needs 99 pages of 4", retryable=False)
        for stream in (False, True):
            r.house.posts["scheduler/0"].refuse_next = refusal
            answer = await http.post(PLAIN, json={"prompt": "x", "stream": stream})
            assert answer.status_code == 400
            assert "99 pages" in answer.json()["error"]["message"]
