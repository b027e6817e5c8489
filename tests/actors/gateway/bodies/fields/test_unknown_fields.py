"""Fields that the server does not know: ignored and told, or refused; over HTTP, and with the official client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from actors.gateway.bodies.fields.unknown_fields import IgnoredFieldsLog, header_of
from actors.gateway.bodies.schema import ChatBody, CompletionBody, read_body
from actors.gateway.requests.refusals import Refusal
from tests.support.answers.client_libraries import openai
from tests.support.gateway.asgi_stream import AsgiStream
from tests.support.gateway.gateway_rig import rig
from tests.support.waiting import DEADLINE_S

CHAT, PLAIN, BATCH = "/v1/chat/completions", "/v1/completions", "/v1/batch"
HELLO: Any = [{"role": "user", "content": "hi"}]
HEADER = "x-ignored-fields"


async def test_the_official_client_is_told_what_was_ignored() -> None:
    async with rig(with_socket=True) as r:
        host, port = r.address

        def talk() -> None:
            with openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="none", timeout=DEADLINE_S) as client:
                create = client.chat.completions.with_raw_response.create
                usual: Any = {"model": "hash-chain", "messages": HELLO, "max_tokens": 4, "temperature": 0}
                plain = create(**usual)
                more = create(**usual, extra_body={"session_id": "s", "stream_interval": 5, "user": "u"})
                assert HEADER not in plain.headers
                assert more.headers[HEADER] == "session_id, stream_interval"
                assert more.parse().choices == plain.parse().choices

        await asyncio.to_thread(talk)


async def test_each_name_is_logged_once_for_each_endpoint() -> None:
    async with rig() as r, r.http() as http:
        with capture_logs() as lines:
            for path in (PLAIN, PLAIN, BATCH):
                key = "prompts" if path == BATCH else "prompt"
                answer = await http.post(path, json={key: ["a"], "max_tokens": 2, "stream_interval": 1})
                assert answer.headers[HEADER] == "stream_interval", answer.text
            tokens = await http.post("/tokenize", json={"prompt": "a", "colour": 1})
            assert tokens.headers[HEADER] == "colour"
        told = [(line["field"], line["endpoint"]) for line in lines if line["event"] == "unknown field is ignored"]
        assert told == [("stream_interval", PLAIN), ("stream_interval", BATCH), ("one that no known API has", "/tokenize")]


async def test_a_misspelt_name_is_logged_as_the_field_that_it_nearly_is() -> None:
    """The name itself is text of a client and is not logged."""
    async with rig() as r, r.http() as http:
        with capture_logs() as lines:
            for name in ("temprature", "temperatura", "colour"):
                answer = await http.post(PLAIN, json={"prompt": "a", "max_tokens": 2, name: 1})
                assert answer.headers[HEADER] == name, answer.text
        told = [line["field"] for line in lines if line["event"] == "unknown field is ignored"]
        assert told == ["one that no known API has, but nearly temperature", "one that no known API has"]


def test_names_that_clients_make_up_are_compared_a_bounded_number_of_times() -> None:
    log = IgnoredFieldsLog(["temperature"])
    with capture_logs() as lines:
        for number in range(64):
            log.note(PLAIN, [f"made-up-{number}"])
        log.note(PLAIN, ["temprature"])
    assert [line["field"] for line in lines] == ["one that no known API has"]


async def test_a_stream_says_it_too_also_when_it_is_asked_for_again(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path)) as r:
        body = {"prompt": [1], "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True, "rate": 2}, "a,b": 1}
        stream = AsgiStream(r, PLAIN, body, {"Idempotency-Key": "one"})
        await stream.end()
        assert stream.headers[HEADER] == "a?b, stream_options.rate"
        await r.kill_gateway()
        await r.start_gateway(2)
        again = AsgiStream(r, "/v1/streams/one", method="GET")
        await again.end()
        assert (again.headers, again.body) == (stream.headers, stream.body)


async def test_strict_fields_refuse() -> None:
    async with rig(strict_fields=True) as r, r.http() as http:
        for extra in ({"colour": 1}, {"stream": True, "stream_options": {"colour": 1}}):
            answer = await http.post(CHAT, json={"messages": HELLO, **extra})
            assert answer.status_code == 400
            assert answer.json()["error"]["param"].endswith("colour")


@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        (CompletionBody, {"prompt": "a", "tools": [{"type": "function"}]}, "tools"),
        (ChatBody, {"messages": HELLO, "chat_template": "{{ messages }}"}, "chat_template"),
        (ChatBody, {"messages": HELLO, "echo": True}, "echo"),
        (ChatBody, {"prompt": "a"}, "prompt"),
        (CompletionBody, {"prompt": "a", "max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
def test_what_would_change_the_answer_is_refused(kind: Any, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_body(json.dumps(fields).encode(), kind, [])
    assert caught.value.field == field


def test_what_asks_for_nothing_is_ignored() -> None:
    ignored: list[str] = []
    read_body(json.dumps({"messages": HELLO, "echo": False, "prompts": None, "request_id": "x"}).encode(), ChatBody, ignored)
    assert ignored == ["echo", "prompts", "request_id"]


def test_white_space_of_a_grammar_is_ignored_by_both_of_its_names() -> None:
    for extra, name in (
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " ?"}}, "structured_outputs.whitespace_pattern"),
        ({"guided_regex": "a", "guided_whitespace_pattern": " ?"}, "guided_whitespace_pattern"),
    ):
        ignored: list[str] = []
        read_body(json.dumps({"messages": HELLO, **extra}).encode(), ChatBody, ignored)
        assert ignored == [name]


def test_many_names_are_bounded_in_the_answer_and_in_the_log() -> None:
    ignored: list[str] = []
    fields = {f"{'é' * 100}{number}": 1 for number in range(10_000)}
    read_body(json.dumps({"messages": HELLO, **fields}).encode(), ChatBody, ignored)
    assert len(ignored) == 32
    assert header_of(ignored) == "?" * 80
    log = IgnoredFieldsLog()
    with capture_logs() as lines:
        log.note(CHAT, map(str, range(10_000)))
    assert [line["field"] for line in lines] == ["one that no known API has"]
