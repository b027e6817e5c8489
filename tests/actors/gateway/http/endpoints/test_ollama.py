"""Ollama's endpoints under the official `ollama` client, unchanged, over a real socket; and what they refuse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.support.answers.client_libraries import ollama
from tests.support.gateway.fake_scheduler import ids_text, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S, until

HELLO: list[dict[str, str]] = [{"role": "user", "content": "hi"}]
GREEDY = {"temperature": 0, "num_predict": 6}
TEMPLATED = text_ids("user: hi\nassistant: ")
ANSWER = oracle(TEMPLATED, 6)


def address_of(r: Rig) -> str:
    host, port = r.address
    return f"http://{host}:{port}"


def check_end(end: Any, n_prompt: int, n_generated: int) -> None:
    """The last object of an answer: why it is over, and what it counts."""
    assert (end.done, end.done_reason) == (True, "length")
    assert (end.prompt_eval_count, end.eval_count) == (n_prompt, n_generated)
    assert end.total_duration == end.load_duration + end.prompt_eval_duration + end.eval_duration
    assert end.created_at.endswith("Z")


async def test_sync_client() -> None:
    async with rig(with_socket=True) as r:
        url = address_of(r)

        def talk() -> None:
            with ollama.Client(url, timeout=DEADLINE_S) as client:
                assert [(m.model, m.size) for m in client.list().models] == [("hash-chain:latest", 0)]
                assert [(m.name, m.context_length) for m in client.ps().models] == [("hash-chain:latest", 8192)]
                shown = client.show("hash-chain:latest")
                assert shown.capabilities == ["completion", "tools"]
                assert shown.modelinfo is not None
                assert shown.modelinfo["unknown.context_length"] == 8192
                assert client.pull("hash-chain").status == client.pull("hash-chain:latest").status == "success"
                assert [part.status for part in client.pull("hash-chain", stream=True)][-1] == "success"
                whole = client.chat("hash-chain", HELLO, options=GREEDY)
                assert whole.message.content == ids_text(ANSWER)
                check_end(whole, len(TEMPLATED), 6)
                parts = list(client.chat("hash-chain:latest", HELLO, options=GREEDY, stream=True))
                assert "".join(part.message.content or "" for part in parts) == ids_text(ANSWER)
                assert [part.done for part in parts] == [False] * 6 + [True]
                check_end(parts[-1], len(TEMPLATED), 6)
                made = client.generate("hash-chain", "hi", options=GREEDY)
                assert made.response == ids_text(ANSWER)
                assert made.context == [*TEMPLATED, *ANSWER]
                parts = list(client.generate("hash-chain", "hi", options=GREEDY, stream=True))
                assert "".join(part.response or "" for part in parts) == ids_text(ANSWER)
                assert parts[-1].context == [*TEMPLATED, *ANSWER]
                with pytest.raises(ollama.ResponseError, match='model: expected "hash-chain", got "other"') as caught:
                    client.chat("other", HELLO)
                assert caught.value.status_code == 404
                with pytest.raises(ollama.ResponseError, match="computes no embeddings"):
                    client.embed("hash-chain", "hi")

        await asyncio.to_thread(talk)


async def test_async_client_and_what_a_prompt_becomes() -> None:
    async with rig(with_socket=True) as r:
        client = ollama.AsyncClient(address_of(r), timeout=DEADLINE_S)

        async def text_of(prompt: str, **fields: Any) -> str:
            return (await client.generate("hash-chain", prompt, options=GREEDY, **fields)).response or ""

        assert await text_of("hi", raw=True) == ids_text(oracle(text_ids("hi"), 6))
        told = text_ids("system: be kind\nuser: hi\nassistant: ")
        assert await text_of("hi", system="be kind") == ids_text(oracle(told, 6))
        assert await text_of("hi", context=[1, 2]) == ids_text(oracle([1, 2, *TEMPLATED], 6))
        parts = [part async for part in await client.chat("hash-chain", HELLO, options=GREEDY, stream=True)]
        assert "".join(part.message.content or "" for part in parts) == ids_text(ANSWER)
        stop = {**GREEDY, "stop": [str(ANSWER[2])]}
        stopped = await client.chat("hash-chain", HELLO, options=stop)
        assert (stopped.message.content, stopped.done_reason) == (ids_text(ANSWER[:2]), "stop")
        empty = [{"role": "user", "content": ""}], [{"role": "user", "content": None}], [{"role": "user"}]
        assert len({(await client.chat("hash-chain", turns, options=GREEDY)).message.content for turns in empty}) == 1
        loaded = await client.generate("hash-chain", keep_alive=0)
        assert (loaded.response, loaded.done, loaded.done_reason) == ("", True, "unload")
        assert (await client.chat("hash-chain")).done_reason == "load"
        await client.close()


@pytest.mark.parametrize("top", [0, 2])
async def test_log_probabilities_have_ollamas_form(top: int) -> None:
    """The same entries in lines and whole, as the official client reads them; none where they are not asked for."""
    tools = [{"type": "function", "function": {"name": "now"}}]  # the text is searched for calls
    wanted: Any = {"options": GREEDY, "logprobs": True, "top_logprobs": top}
    async with rig(with_socket=True) as r:
        client = ollama.AsyncClient(address_of(r), timeout=DEADLINE_S)
        whole = (await client.generate("hash-chain", "hi", **wanted)).logprobs
        chat = await client.chat("hash-chain", HELLO, tools=tools, **wanted)
        lines = [one async for one in await client.generate("hash-chain", "hi", stream=True, **wanted)]
        more = [one async for one in await client.chat("hash-chain", HELLO, tools=tools, stream=True, **wanted)]
        plain = await client.generate("hash-chain", "hi", options=GREEDY)
        await client.close()
    assert whole is not None
    assert [one.token for one in whole] == [f"{token} " for token in ANSWER]
    assert [len(one.top_logprobs or ()) for one in whole] == [top] * 6
    assert (whole[0].top_logprobs is None) is (top == 0)
    assert [entry for one in lines for entry in one.logprobs or ()] == whole
    assert [entry for one in more for entry in one.logprobs or ()] == chat.logprobs
    assert "".join(one.message.content or "" for one in more) == chat.message.content
    assert plain.logprobs is None


async def test_options_become_sampling_and_terms() -> None:
    options = {
        **{"temperature": 0.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125, "seed": 9, "repeat_penalty": 1.5},
        **{"presence_penalty": 0.5, "frequency_penalty": -0.5, "stop": "x", "num_predict": -1, "num_ctx": 4096},
    }
    async with rig(max_length=64) as r, r.http() as http:
        for given in (options, {"num_predict": 1000}, {"seed": -1, "num_predict": 1}):
            answer = await http.post("/api/generate", json={"prompt": "hi", "raw": True, "stream": False, "options": given})
            assert answer.status_code == 200, answer.text
        first, second, _ = r.scheduler().submits
        assert (first.sampling.temperature, first.sampling.top_k, first.sampling.top_p) == (0.5, 7, 0.25)
        assert (first.sampling.min_p, first.sampling.seed, first.sampling.repetition_penalty) == (0.125, 9, 1.5)
        assert (first.sampling.presence_penalty, first.sampling.frequency_penalty) == (0.5, -0.5)
        assert first.terms.max_tokens == 62
        assert (second.sampling.temperature, second.sampling.top_k, second.sampling.top_p) == (0.8, 40, 0.9), "Ollama's"
        assert second.terms.max_tokens == 62, "cut to what the context has left"


REFUSED: list[tuple[str, Any, int, str]] = [
    ("/api/generate", {"prompt": "x", "model": "other"}, 404, "model: expected"),
    ("/api/generate", {"prompt": "x", "format": "json"}, 400, "format: expected"),
    ("/api/generate", {"prompt": "x", "think": True}, 400, "think: expected"),
    ("/api/generate", {"prompt": "x", "images": ["aaaa"]}, 400, "images: expected"),
    ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, 400, "template: expected"),
    ("/api/generate", {"prompt": "x", "raw": True, "system": "y"}, 400, "system: expected nothing beside raw"),
    ("/api/generate", {"prompt": "x", "raw": True, "context": [1]}, 400, "context: expected nothing beside raw"),
    ("/api/generate", {"prompt": "x", "context": [-1]}, 400, "context: expected token ids"),
    ("/api/generate", {"prompt": "x", "options": {"stop": [""]}}, 400, "options.stop: expected strings of 1 to"),
    ("/api/generate", {"prompt": "x", "options": {"mirostat": 1}}, 400, "options.mirostat: expected 0 or null"),
    ("/api/generate", {"prompt": "x", "options": {"temperature": -1}}, 400, "options.temperature: expected a number >= 0"),
    ("/api/generate", {"prompt": "x", "max_tokens": 4}, 400, "max_tokens: unknown field; expected options.num_predict instead"),
    (
        "/api/chat",
        {"messages": HELLO, "reasoning_effort": "low"},
        400,
        "reasoning_effort: unknown field; expected think instead",
    ),
    ("/api/chat", {"messages": HELLO, "tools": [{"type": "function"}]}, 400, "tools[0].name: expected"),
    ("/api/chat", {"messages": HELLO, "top_logprobs": 2}, 400, "top_logprobs: expected logprobs: true"),
    ("/api/chat", {"messages": HELLO, "format": {"type": "object"}}, 400, "format: expected"),
    ("/api/chat", {"messages": [{**HELLO[0], "images": ["aaaa"]}]}, 400, "messages[0].images: expected"),
    ("/api/chat", {"messages": [{"role": "king", "content": "x"}]}, 400, "messages[0].role: expected"),
    ("/api/show", {"model": "other"}, 404, "model: expected"),
    ("/api/embed", {"input": "x"}, 404, "no embeddings"),
    ("/api/embeddings", {"prompt": "x"}, 404, "no embeddings"),
    ("/api/pull", {"model": "x"}, 404, 'model: expected "hash-chain", got "x"; another model: supervisor pull MODEL'),
    ("/api/pull", {}, 404, 'model: expected "hash-chain", got an empty string'),
    ("/api/delete", {"model": "x"}, 404, "path: models cannot be made"),
    ("/api/embedd", {"model": "x"}, 404, "path: unknown, got POST /api/embedd; did you mean /api/embed?"),
    ("/api/tags", {}, 405, "method: expected"),
]


async def test_errors_have_ollamas_form_and_name_the_field() -> None:
    async with rig() as r, r.http() as http:
        for path, body, status, words in REFUSED:
            answer = await http.post(path, json=body)
            assert answer.status_code == status, (path, body, answer.text)
            assert list(answer.json()) == ["error"], (path, body)
            assert words in answer.json()["error"], (path, body, answer.text)
        unknown = await http.post("/api/generate", json={"prompt": "", "options": {"num_ctx": 5, "temprature": 1}})
        assert unknown.headers["x-ignored-fields"] == "options.temprature"
        assert (await http.get("/")).text.startswith("Tardigrade is running\n")
        assert (await http.get("/api/version")).json() == (await http.get("/version")).json()
        assert [(await http.get(path)).status_code for path in ("/livez", "/readyz")] == [200, 200]


BESIDE_OPTIONS = {
    **{"temperature": 9, "top_p": 0.5, "top_k": 7, "min_p": 0.5, "seed": 3, "stop": ["1"], "repetition_penalty": 2},
    **{"max_output_tokens": 1, "tool_choice": "required"},
}


@pytest.mark.parametrize(("path", "rest"), [("/api/chat", {"messages": HELLO}), ("/api/generate", {"prompt": "hi"})])
async def test_what_stands_beside_the_options_is_passed_over_and_told(path: str, rest: dict[str, Any]) -> None:
    """Vercel's provider for Ollama sends it there."""
    body = {**rest, "stream": False, "options": GREEDY}
    async with rig() as r, r.http() as http:
        plain = await http.post(path, json=body)
        with capture_logs() as lines:
            told = await http.post(path, json={**body, **BESIDE_OPTIONS})
        assert told.status_code == 200, told.text
        assert told.headers["x-ignored-fields"].split(", ") == list(BESIDE_OPTIONS)
        assert told.json().get("message") == plain.json().get("message")
        assert told.json().get("response") == plain.json().get("response")
        logged = [line["field"] for line in lines if line["event"] == "unknown field is ignored"]
        assert logged == list(BESIDE_OPTIONS)
    async with rig(strict_fields=True) as r, r.http() as http:
        for name, value in BESIDE_OPTIONS.items():
            refused = await http.post(path, json={**body, name: value})
            assert (refused.status_code, f"{name}: unknown field" in refused.text) == (400, True), refused.text
        refused = await http.post(path, json={**body, "temperature": 1})
        assert "expected options.temperature instead" in refused.text


async def test_a_ping_is_a_line_that_clients_can_read_and_a_late_failure_is_an_error_line() -> None:
    async with rig(with_scheduler=False, with_socket=True, sse_ping_s=0.01, resubmit_budget=1) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        client = ollama.AsyncClient(address_of(r), timeout=DEADLINE_S)
        parts = await client.generate("hash-chain", "hi", options=GREEDY, stream=True)
        first = asyncio.ensure_future(anext(parts))  # its client sends a request when its first part is asked for
        await until(lambda: bool(scheduler.running))
        scheduler.step(1)
        texts = [(await first).response, (await anext(parts)).response]
        assert "" in texts, "a ping, before or after the first token"
        (attempt,) = scheduler.running
        scheduler.fail(attempt)
        with pytest.raises(ollama.ResponseError):
            async for _ in parts:
                pass
        await client.close()


@pytest.mark.parametrize("stop", [None, str(ANSWER[3])])
async def test_the_next_gateway_writes_the_same_bytes(tmp_path: Path, stop: str | None) -> None:
    """Durations too: they are recorded with the ending, also with one by a stop string, which is found again."""
    body = {"prompt": "hi", "options": {**GREEDY, "stop": stop}}
    async with rig(with_scheduler=False, journal_path=str(tmp_path / "journal")) as r:
        await r.add_scheduler()

        async def ask() -> httpx.Response:
            async with r.http() as http:
                return await http.post("/api/generate", json=body, headers={"Idempotency-Key": "one"})

        first = await ask()
        await r.kill_gateway()
        await r.start_gateway(2)
        second = await ask()
    assert (second.content, second.headers["date"]) == (first.content, first.headers["date"])
    assert first.headers["content-type"] == "application/x-ndjson"
    end = json.loads(first.text.splitlines()[-1])
    assert end["total_duration"] > 0
    assert end["done_reason"] == ("stop" if stop else "length")


async def test_the_command_line_of_ollama_finds_a_server() -> None:
    async with rig(with_socket=True) as r, httpx.AsyncClient(base_url=address_of(r)) as http:
        assert (await http.head("/")).status_code == 200
