"""Refusals of the server's state and of size, over HTTP; the table of wrong fields is in `test_refusals`."""

from __future__ import annotations

import asyncio

import pytest

from messages.generation.sequences import Refused
from tests.support.gateway.gateway_rig import rig

CHAT, PLAIN, GENERATE, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/generate", "/v1/batch"
HELLO = [{"role": "user", "content": "hi"}]


async def test_a_prompt_that_is_too_long_is_told_both_numbers() -> None:
    async with rig(max_length=512) as r, r.http() as http:
        error = (await http.post(PLAIN, json={"prompt": [1] * 600})).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert "512" in error["message"]
        assert "600" in error["message"]
        talk = {"max_tokens": 4, "messages": [{"role": "user", "content": "x" * 600}]}
        told = (await http.post("/v1/messages", json=talk)).json()["error"]["message"]
        assert told.startswith("prompt is too long: messages: expected at most 511 tokens"), "as Anthropic's agents expect it"


async def test_without_max_tokens_completions_are_cut_to_the_context() -> None:
    async with rig(max_length=16) as r, r.http() as http:
        answer = await http.post(PLAIN, json={"prompt": [1] * 10, "ignore_eos": True})
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 6, "not the default of 16"
        asked = (await http.post(PLAIN, json={"prompt": [1] * 10, "max_tokens": 16})).json()["error"]
        assert asked["message"] == (
            "max_tokens: expected at most 6 (this model's context is 16 tokens, and the prompt has 10), got 16"
        )
        full = (await http.post(PLAIN, json={"prompt": [1] * 16})).json()["error"]
        assert full["message"] == (
            "prompt: expected at most 15 tokens (this model's context is 16, of which one must stay free), got 16"
        )


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


async def test_a_slash_at_the_end_is_told_and_redirected() -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post(f"{CHAT}/", json={"messages": HELLO, "max_tokens": 1})
        assert (answer.status_code, answer.headers["location"]) == (307, CHAT)
        assert answer.json()["error"]["message"] == f"path: expected {CHAT}, got {CHAT}/"
        followed = await http.post(f"{CHAT}/", json={"messages": HELLO, "max_tokens": 1}, follow_redirects=True)
        assert followed.status_code == 200


@pytest.mark.parametrize("path", [CHAT, PLAIN, GENERATE, BATCH, "/tokenize", "/detokenize"])
async def test_fields_in_the_address_are_refused_and_not_ignored(path: str) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.post(f"{path}?stream=true", json={})
        assert answer.status_code == 400
        error = answer.json()["error"]
        said = "stream: unknown query parameter; expected none, because the fields of a request are in its body"
        assert (error["message"], error["param"], error["code"]) == (said, "stream", "invalid")


async def test_the_address_of_a_stream_takes_what_it_knows() -> None:
    async with rig() as r, r.http() as http:
        wrong = (await http.get("/v1/streams/mine?starting_aftr=3")).json()["error"]
        assert wrong["message"] == "starting_aftr: unknown query parameter; expected starting_after"
        assert (await http.get("/v1/streams/mine?starting_after=3")).status_code == 404


async def test_facts_ignore_the_address_and_clients_for_azure_are_served() -> None:
    async with rig() as r, r.http() as http:
        for path in ("/v1/models", "/v1/health", "/live", "/metrics"):
            assert (await http.get(f"{path}?verbose&limit=3")).status_code == 200, path
        answer = await http.post(f"{PLAIN}?api-version=2024-10-21", json={"prompt": [1], "max_tokens": 1})
        assert answer.status_code == 200, answer.text


WRONG_WAYS = [("GET", CHAT, 405), ("POST", "/v1/models", 405), ("GET", "/nowhere", 404)]


@pytest.mark.parametrize(("method", "path", "status"), WRONG_WAYS)
async def test_wrong_method_and_unknown_path_in_openais_shape(method: str, path: str, status: int) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.request(method, path)
        assert answer.status_code == status
        assert path in answer.json()["error"]["message"]


ELSEWHERE = [("/v1/v1/messages", "/v1/messages"), ("/v1/api/chat", "/api/chat"), ("/reset_prefix_cache", "/v1/cache/reset")]
ELSEWHERE += [("/invocations", "/v1/chat/completions"), ("/openai/deployments/m/chat/completions", "/v1/chat/completions")]
ELSEWHERE += [("/openai/deployments/m/embeddings", "/v1/embeddings"), ("/engines/m/completions", "/v1/completions")]


ABSENT = [
    ("/v1/rerank", "this server ranks and classifies nothing; /v1/embeddings"),
    ("/pooling", "this server ranks and classifies nothing; "),
    ("/v1/moderations", "this server ranks and classifies nothing; "),
    ("/v1/fine_tuning/jobs", "there is no such thing here"),
    ("/v1", "clients of OpenAI take it as their base URL; GET /v1/models"),
    ("/chat/completions", "did you mean /v1/chat/completions? The base URL of a client of OpenAI ends with /v1"),
    ("/v1/batches", "this server keeps no files; POST /v1/batch "),
    ("/v1/audio/transcriptions", "this server reads and writes texts only"),
    ("/v1/load_lora_adapter", "there is no LoRA here"),
]


async def test_a_wrong_path_is_told_the_nearest_one_and_a_wrong_method_the_right_one() -> None:
    async with rig() as r, r.http() as http:
        wrong = (await http.post("/v1/chat/completion")).json()["error"]["message"]
        assert wrong == "path: unknown, got POST /v1/chat/completion; did you mean /v1/chat/completions?"
        for typed, meant in [*ELSEWHERE, ("/v1/chat", "/v1/chat/completions")]:
            answer = (await http.post(typed)).text  # in the shape of the API that is meant
            assert f"path: unknown, got POST {typed}; did you mean {meant}?" in answer
        absent = (await http.post("/v1/rerankings")).json()["error"]["message"]  # near no path
        assert absent == "path: unknown, got POST /v1/rerankings; GET /docs shows them all"
        for typed, instead in ABSENT:
            assert f"path: unknown, got POST {typed}; {instead}" in (await http.post(typed)).text
        assert (await http.get(CHAT)).json()["error"]["message"] == f"method: expected POST for {CHAT}, got GET"
        several = await http.patch("/v1/tenants/a")
        assert several.json()["error"]["message"] == "method: expected DELETE, GET, HEAD, PUT for /v1/tenants/a, got PATCH"
        assert set(several.headers["allow"].split(", ")) == {"DELETE", "GET", "HEAD", "PUT"}


ANTHROPIC, OLLAMA = {"anthropic-version": "2023-06-01"}, {"user-agent": "ollama-python/0.6.3 (x86_64 linux)"}
NOWHERE: list[tuple[str, dict[str, str]]] = [
    ("/v1/files", ANTHROPIC),
    ("/v1/models/other", ANTHROPIC),
    ("/v1/v1/messages/batches", {}),
    ("/chat", OLLAMA),
    ("/v1/api/tags", {}),
    ("/v1/files", {}),
]


@pytest.mark.parametrize(("path", "headers"), NOWHERE)
async def test_an_unknown_path_is_refused_in_the_shape_of_the_clients_api(path: str, headers: dict[str, str]) -> None:
    async with rig() as r, r.http() as http:
        answer = await http.get(path, headers=headers)
        assert answer.status_code == 404
        wrong = answer.json()
        if headers is OLLAMA or "/api/" in path:
            assert wrong["error"].startswith(f"path: unknown, got GET {path}")
        elif headers is ANTHROPIC or "/messages" in path:
            assert (wrong["type"], wrong["error"]["type"]) == ("error", "not_found_error")
        else:
            assert wrong["error"]["code"] == "not_found"


async def test_known_fields_at_their_default_are_taken() -> None:
    async with rig() as r, r.http() as http:
        idle = {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "logit_bias": None, "user": "me"}
        more = {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "parallel_tool_calls": True}
        body = {"messages": HELLO, "max_tokens": 1, **idle, **more}
        assert (await http.post(CHAT, json=body)).status_code == 200
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
        await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
        second = await http.post(GENERATE, json={"tokens": [3]})
        assert second.status_code == 429
        assert second.json()["error"]["type"] == "rate_limit_error"
        assert int(second.headers["retry-after"]) >= 1
        scheduler.step(2)
        assert (await first).status_code == 200


async def test_a_scheduler_that_can_never_run_it_makes_a_400() -> None:
    async with rig() as r, r.http() as http:
        refusal = Refused(attempt=0, code="too_large_for_memory", detail="needs 99 pages of 4", retryable=False)
        for stream in (False, True):
            r.scheduler().refuse_next = refusal
            answer = await http.post(PLAIN, json={"prompt": "x", "stream": stream})
            assert answer.status_code == 400
            assert "99 pages" in answer.json()["error"]["message"]


async def test_who_comes_too_late_is_told_when_to_come_back() -> None:
    async with rig() as r, r.http() as http:
        late = Refused(attempt=0, code="deadline", detail="ttft_ms: expected more", retryable=False, retry_after_s=2.4)
        for stream in (False, True):
            r.scheduler().refuse_next = late
            answer = await http.post(PLAIN, json={"prompt": "x", "stream": stream})
            assert (answer.status_code, answer.headers["retry-after"]) == (504, "3")
            assert answer.json()["error"]["code"] == "deadline"


async def test_a_quarantined_request_is_an_error_that_clients_do_not_repeat() -> None:
    async with rig() as r, r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        asked = asyncio.ensure_future(http.post(PLAIN, json={"prompt": "x"}))
        await r.cluster.wait_until(lambda: len(scheduler.running) == 1)
        scheduler.fail(next(iter(scheduler.running)), "workers died 4 times", "quarantined")
        answer = await asked
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (422, "quarantined", "invalid_request_error")
        assert "died 4 times" in error["message"]
