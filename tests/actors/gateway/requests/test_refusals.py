"""Every refusal over HTTP: OpenAI's shape, the field named, what was expected and what came; and nothing restarts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from actors.gateway.bodies import schema as api_schema
from actors.gateway.http.errors import error_response
from actors.gateway.requests.refusals import Refusal, json_text
from messages.client import AsyncClient
from messages.errors import InvalidRequest, Unavailable
from messages.outcomes import CODE_BY_FINE_CODE, Code, FineCode
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.gateway_rig import rig
from tests.support.gateway.zmq_clients import zmq_rig

CHAT, PLAIN, ONE, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/generate", "/v1/batch"
HI = {"messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "now"}}
MAX_LENGTH = 64


def chat(**fields: Any) -> tuple[str, dict]:
    return CHAT, HI | fields


def plain(**fields: Any) -> tuple[str, dict]:
    return PLAIN, {"prompt": "hi", **fields}


# (route, body), status, param, words of the message
REFUSED: list[tuple[tuple[str, Any], int, str | None, list[str]]] = [
    (chat(temperature="hot"), 400, "temperature", ["a number", '"hot"']),
    (chat(temperature=True), 400, "temperature", ["a number", "true"]),
    (chat(temperature=-0.1), 400, "temperature", ["-0.1", "0.0"]),
    (chat(temperature=1e9), 400, "temperature", ["100"]),
    (chat(top_p=0), 400, "top_p", ["0"]),
    (chat(top_p=1.5), 400, "top_p", ["1.5"]),
    (chat(min_p=1.5), 400, "min_p", ["1.0", "1.5"]),
    (chat(top_k=-2), 400, "top_k", ["-2"]),
    (chat(presence_penalty=3), 400, "presence_penalty", ["2.0"]),
    (chat(frequency_penalty=-3), 400, "frequency_penalty", ["2.0"]),
    (chat(repetition_penalty=0), 400, "repetition_penalty", ["0"]),
    (chat(max_tokens=0), 400, "max_tokens", ["at least 1", "0"]),
    (chat(max_tokens=-5), 400, "max_tokens", ["-5"]),
    (chat(max_tokens=1.5), 400, "max_tokens", ["an integer", "1.5"]),
    (chat(max_tokens=10**30), 400, "max_tokens", []),
    (chat(max_tokens=2**62), 400, "max_tokens", [str(MAX_LENGTH), str(2**62)]),
    (chat(max_completion_tokens=MAX_LENGTH), 400, "max_completion_tokens", [str(MAX_LENGTH)]),
    (chat(n=0), 400, "n", ["0"]),
    (chat(n=10**6), 400, "n", ["1 to 128", "1000000"]),
    (chat(n=-1), 400, "n", ["-1"]),
    (chat(seed="x"), 400, "seed", ["an integer", '"x"']),
    (chat(stop=5), 400, "stop", ["a string or a list", "5"]),
    (chat(stop=[""]), 400, "stop", ["1 to 256"]),
    (chat(stop=["x"] * 17), 400, "stop", ["16", "17"]),
    (chat(stop_token_ids=[-1]), 400, "stop_token_ids", ["-1"]),
    (chat(stop_token_ids=[10**9]), 400, "stop_token_ids", ["32767"]),
    (chat(stop_token_ids=list(range(100))), 400, "stop_token_ids", ["64", "100"]),
    (chat(stream="yes"), 400, "stream", ["true or false", '"yes"']),
    (chat(stream_options={"include_usage": True}), 400, "stream_options", ["stream"]),
    (chat(top_logprobs=3), 400, "top_logprobs", ["logprobs"]),
    (chat(logprobs=True, top_logprobs=21), 400, "top_logprobs", ["20", "21"]),
    (chat(tools=[{"type": "function"}]), 400, "tools[0].name", ["1 to 128 letters", "null"]),
    (chat(tools=[{"name": "now", "input_schema": {}}]), 400, "tools[0].function", ["parameters", "/v1/messages"]),
    (chat(tools=[{"type": "search"}]), 400, "tools[0]", ["function"]),
    (chat(tools=[TOOL, TOOL]), 400, "tools", ["different names", "now"]),
    (chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "x"}}), 400, "tool_choice.function.name", ["x"]),
    (chat(tool_choice="required"), 400, "tool_choice", ["without tools"]),
    (chat(tools=[TOOL], functions=[{"name": "a"}]), 400, "functions", ["nothing beside tools"]),
    (chat(response_format={"type": "json_object"}), 400, "response_format", ["a model without a tokenizer"]),
    (chat(response_format={"type": "yaml"}), 400, "response_format", ["json_schema", "yaml"]),
    (chat(guided_regex="a", guided_choice=["b"]), 400, "guided_choice", ["one grammar at most", "guided_regex"]),
    (chat(logit_bias={"5": 101}), 400, "logit_bias", ["100", '{"5": 101}']),
    (chat(logit_bias={"32768": 1}), 400, "logit_bias", ["32767", "32768"]),
    (chat(logit_bias={"a": 1}), 400, "logit_bias", ["token ids", '"a"']),
    (chat(logit_bias={"05": 1}), 400, "logit_bias", ["token ids", '"05"']),
    (chat(logit_bias={str(i): 1 for i in range(1001)}), 400, "logit_bias", ["at most 1000 items"]),
    (chat(allowed_token_ids=[]), 400, "allowed_token_ids", ["at least 1 item"]),
    (chat(allowed_token_ids=[32768]), 400, "allowed_token_ids", ["32767", "32768"]),
    (chat(allowed_token_ids=[98, 99], bad_words=["b", "abc"]), 400, "allowed_token_ids", ["bad_words"]),
    (chat(allowed_token_ids=[5], stop_token_ids=[5], min_tokens=1), 400, "allowed_token_ids", ["min_tokens"]),
    (chat(bad_words=[" "]), 400, "bad_words", ["at least one character"]),
    (chat(bad_words=["a"] * 129), 400, "bad_words", ["128", "129"]),
    (chat(bad_words=["a"], guided_regex="a"), 400, "bad_words", ["none beside guided_regex"]),
    (chat(model="other"), 404, "model", ["other", "hash-chain"]),
    (chat(model=7), 400, "model", ["a string", "7"]),
    (chat(n=10**30), 400, "n", []),
    (chat(seed=2**70), 400, "seed", []),
    (chat(stop=[1]), 400, "stop[0]", ["a string", "1"]),
    ((CHAT, {"messages": []}), 400, "messages", ["at least one", "an empty list"]),
    ((CHAT, {}), 400, "messages", ["expected a list of messages", "got nothing"]),
    ((CHAT, {"messages": "hi"}), 400, "messages", ["a list", '"hi"']),
    ((CHAT, {"messages": ["hi"]}), 400, "messages[0]", ["an object", '"hi"']),
    ((CHAT, {"messages": [{"role": "king", "content": "x"}]}), 400, "messages[0].role", ["user", "king"]),
    ((CHAT, {"messages": [{"content": "x"}]}), 400, "messages[0].role", ["null"]),
    ((CHAT, {"messages": [{"role": "user"}]}), 400, "messages[0].content", ["text", "null"]),
    ((CHAT, {"messages": [{"role": "user", "content": 7}]}), 400, "messages[0].content", ["7"]),
    ((CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), 400, "messages[0].content[0]", ["image"]),
    ((CHAT, {"messages": [{"role": "user", "content": "x" * 100}]}), 400, "messages", [str(MAX_LENGTH), "118"]),
    (plain(prompt=""), 400, "prompt", ["at least one token"]),
    (plain(prompt=[]), 400, "prompt", ["not empty"]),
    (plain(prompt=[1, "x"]), 400, "prompt", ["token ids"]),
    (plain(prompt=[[]]), 400, "prompt", ["at least one token"]),
    (plain(prompt=[-1]), 400, "prompt", ["-1", "32767"]),
    (plain(prompt=[32768]), 400, "prompt", ["32768"]),
    (plain(prompt=[2**70]), 400, "prompt", []),
    (plain(prompt=[2**62]), 400, "prompt", ["0 to 32767", str(2**62)]),
    (plain(prompt=[True]), 400, "prompt", ["true"]),
    (plain(prompt="x" * 64), 400, "prompt", ["64"]),
    (plain(prompt=[1] * 60, max_tokens=5), 400, "max_tokens", ["60", "5", "64"]),
    (plain(best_of=2, n=3), 400, "best_of", ["at least n (3)", "2"]),
    (plain(best_of=2, stream=True), 400, "best_of", ["the same as n (1)", "2"]),
    (plain(best_of=129), 400, "best_of", ["1 to 128", "129"]),
    (plain(prompt_logprobs=1, stream=True), 400, "prompt_logprobs", []),
    (plain(suffix="end"), 400, "suffix", ["not supported"]),
    ((ONE, {}), 400, "prompt", ["exactly one"]),
    ((ONE, {"prompt": "a", "tokens": [1]}), 400, "prompt", ["exactly one"]),
    ((ONE, {"prompt": "a", "stream": True}), 400, "stream", ["false", "true"]),
    ((ONE, {"prompt": "a", "n": 2}), 400, "n", ["1", "2"]),
    ((ONE, {"tokens": []}), 400, "tokens", ["at least one token"]),
    ((ONE, {"tokens": [1.5]}), 400, "tokens[0]", ["an integer", "1.5"]),
    ((ONE, {"prompt": "a", "request_id": ""}), 400, "request_id", ["printable ASCII", "an empty string"]),
    *(
        ((ONE, {"prompt": "a", "request_id": name}), 400, "request_id", ["printable ASCII", json_text(name)])
        for name in ("a\0", "a\nb", "a\r\nX-Evil: 1", "a\tb", "a\x7f", "é", "日本", "x" * 257)
    ),
    ((BATCH, {"prompts": []}), 400, "prompts", ["0"]),
    ((BATCH, {"prompts": ["a"] * 5}), 400, "prompts", ["1 to 4", "5"]),
    ((BATCH, {"tokens": [[1], []]}), 400, "tokens", ["at least one token"]),
    ((BATCH, {"prompts": ["a", ""]}), 400, "prompts", ["at least one token"]),
]
RAW: list[tuple[bytes, list[str]]] = [
    (b"", ["JSON"]),
    (b'{"messages": [', ["JSON"]),
    (b"[]", ["object, got an empty list"]),
    (b"null", ["object"]),
    (b'"text"', ['object, got "text"']),
    (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', ["body"]),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', ["JSON"]),
    (b'{"temperature": NaN}', ["JSON"]),
    (b'{"temperature": 1e999}', ["body"]),
    (b"[" * 100_000, ["JSON"]),
    (b"\x00\x01\x02", ["JSON"]),
]


def checked(answer: httpx.Response, status: int, param: str | None, words: list[str]) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param, error
    assert answer.headers["x-request-id"]
    names = {404: "model_not_found"}
    assert error["code"] == names.get(status, error["code"])
    for word in words:
        assert word in error["message"], error


async def test_the_whole_table_and_nothing_restarts() -> None:
    async with rig(max_length=MAX_LENGTH, max_batch=4, strict_fields=True) as r, r.http() as http:
        for (route, body), status, param, words in REFUSED:
            answer = await http.post(route, content=json.dumps(body))
            checked(answer, status, param, words)
        for raw, words in RAW:
            for route in (CHAT, PLAIN, ONE, BATCH):
                answer = await http.post(route, content=raw)
                assert answer.status_code == 400, (route, raw[:50], answer.text)
                assert any(word in answer.json()["error"]["message"] for word in words), answer.text
        assert r.gateway.manager.gate.n_active == 0
        assert not r.cluster.scripted["scheduler/0"].submits  # pyright: ignore[reportAttributeAccessIssue]
        good = await http.post(ONE, json={"tokens": [3], "max_tokens": 4, "temperature": 0})
        assert good.json()["tokens"] == oracle([3], 4)


async def test_busy_starting_and_draining() -> None:
    async with rig(with_scheduler=False, max_active_requests=2) as r, r.http() as http:
        assert (await http.get("/v1/health")).status_code == 503
        early = await http.post(PLAIN, json={"prompt": "x"})
        assert early.status_code == 503
        assert int(early.headers["retry-after"]) >= 1
        assert early.json()["error"]["type"] == "service_unavailable_error"
        scheduler = await r.add_scheduler(is_automatic=False)
        assert (await http.get("/v1/health")).status_code == 200
        running = asyncio.ensure_future(http.post(PLAIN, json={"prompt": "x", "n": 2, "temperature": 0}))
        await r.cluster.wait_until(lambda: len(scheduler.running) == 2)
        full = await http.post(PLAIN, json={"prompt": "x"})
        assert (full.status_code, full.json()["error"]["type"]) == (429, "rate_limit_error")
        assert "retry-after" in full.headers
        r.gateway.drain(5.0)
        late = await http.post(PLAIN, json={"prompt": "x"})
        assert late.status_code == 503
        assert (await http.get("/v1/health")).json()["status"] == "draining"
        while scheduler.running:
            scheduler.step(8)
        assert (await running).status_code == 200


@pytest.mark.parametrize("kind", [api_schema.ChatBody, api_schema.CompletionBody])
@pytest.mark.parametrize("words", ["{}", "[1]", '{"prompt": {"a": 1}}', '{"n": 99999999999999999999999}'])
def test_a_body_is_refused_in_words(kind: type[api_schema.RequestFields], words: str) -> None:
    with pytest.raises(Refusal, match=r"expected|Expected|missing|unknown"):
        api_schema.read_body(words.encode(), kind)


def test_every_code_has_a_status_and_a_line_in_the_guide() -> None:
    guide = (Path(__file__).parents[4] / "docs" / "api.md").read_text(encoding="utf-8")
    lines = [line for line in guide.partition("## Errors")[2].splitlines() if line.startswith("| ")]
    assert set(get_args(FineCode)) == CODE_BY_FINE_CODE.keys()
    for why in (*get_args(Code), *get_args(FineCode)):
        refusal = Refusal(why, "no")
        shown = error_response(refusal)
        code = json.loads(bytes(shown.body))["error"]["code"]
        assert any(line.startswith(f"| {shown.status_code} |") and f"`{code}`" in line for line in lines), why
        assert (refusal.fine_code or refusal.code) == why


async def test_a_zeromq_client_gets_the_finer_code() -> None:
    async with zmq_rig() as (r, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        with pytest.raises(InvalidRequest, match="model: expected") as refused:
            await client.generate("x", model="another")
        assert refused.value.code == "model_not_found"
        with pytest.raises(Unavailable) as early:
            await client.generate("x")
        assert early.value.code == "unavailable"
