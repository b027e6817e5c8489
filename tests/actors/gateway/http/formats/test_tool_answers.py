"""Calls of tools in each API's own form: streamed and whole, and streamed on from any event."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from actors.gateway.requests.request_spec import Api, Ended
from actors.gateway.text.channels import Splitting
from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.tools.dialects import Dialect, ToolRules
from tests.support.answers.written_answer import body_of, events_of, written

TOOLS = Splitting(tools=ToolRules(Dialect.HERMES, ["get_weather", "now"]))
FUNCTIONS = Splitting(tools=ToolRules(Dialect.HERMES, ["get_weather", "now"], most_calls=1, is_function=True))
THINKING = Splitting(reasoning=ReasoningMarks("<think>", "</think>"), tools=TOOLS.tools)
FORCED = Splitting(tools=ToolRules(Dialect.HERMES, ["get_weather", "now"], is_forced=True, begins_with_null=True))
TEXTS = [
    *("Let", " me look.\n"),
    *("<tool", '_call>\n{"name": "get_weather', '", "arguments": {"ci', 'ty": "Pa', 'ris"}}\n</tool_call>'),
    *('\n<tool_call>\n{"name": "now", "arguments": {}}', "\n</tool_call>"),
]  # fmt: skip
BROKEN = ["<tool_call>", '{"name": "now", "arguments": ', '{"a": b}', "}", "</tool_call>"]
CALLS = [("get_weather", {"city": "Paris"}), ("now", {})]


def data_of(events: list[bytes]) -> list[Any]:
    """The JSON of every `data:` line, and of every line of NDJSON."""
    lines = [line.removeprefix(b"data: ") for event in events for line in event.split(b"\n")]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def streamed_content(events: list[Any]) -> str:
    """The content in the events of any of the APIs."""
    shown = [event["choices"][0]["delta"] for event in events if event.get("choices")]
    shown += [event["message"] for event in events if "message" in event and event.get("type") != "message_start"]
    texts = [event["delta"].get("text", "") for event in events if event.get("type") == "content_block_delta"]
    return "".join([*(fields.get("content") or "" for fields in shown), *texts])


def test_a_chat_has_calls_whole_and_in_deltas() -> None:
    request = written(TEXTS, "chat", TOOLS)
    (choice,) = json.loads(body_of(request))["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == ("Let me look.", "tool_calls")
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message["tool_calls"]] == CALLS
    chunks = [chunk["choices"][0] for chunk in data_of(events_of(request)) if chunk["choices"]]
    joined: dict[int, dict[str, Any]] = {}
    for delta in (delta for chunk in chunks for delta in chunk["delta"].get("tool_calls", ())):
        call = joined.setdefault(delta["index"], {"id": delta.get("id"), "type": "function", "function": {"arguments": ""}})
        call["function"].setdefault("name", delta["function"].get("name"))
        call["function"]["arguments"] += delta["function"]["arguments"]
    assert [joined[index] for index in range(2)] == message["tool_calls"]
    assert chunks[-1]["finish_reason"] == "tool_calls"
    assert "".join(chunk["delta"].get("content") or "" for chunk in chunks) == "Let me look."


def test_a_stream_of_forced_calls_begins_without_content() -> None:
    """As OpenAI's. One that an earlier release has begun goes on with the bytes of its beginning."""
    assert FORCED.tools is not None
    earlier = Splitting(tools=msgspec.structs.replace(FORCED.tools, begins_with_null=False))
    for splitting, content in ((FORCED, None), (earlier, ""), (TOOLS, "")):
        first, *others = data_of(events_of(written(TEXTS[2:], "chat", splitting)))
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": content}
        assert all("content" not in event["choices"][0]["delta"] for event in others if event["choices"])


def test_the_older_form_has_one_call() -> None:
    request = written(TEXTS[2:], "chat", FUNCTIONS)
    (choice,) = json.loads(body_of(request))["choices"]
    called = choice["message"]["function_call"]
    assert (choice["finish_reason"], called["name"], json.loads(called["arguments"])) == ("function_call", *CALLS[0])
    chunks = [chunk["choices"][0] for chunk in data_of(events_of(request)) if chunk["choices"]]
    deltas = [chunk["delta"]["function_call"] for chunk in chunks if "function_call" in chunk["delta"]]
    assert deltas[0]["name"] == "get_weather"
    assert "".join(delta["arguments"] for delta in deltas) == called["arguments"]


def test_a_message_has_a_block_for_each_call() -> None:
    request = written(["<think>hm</think>", *TEXTS], "messages", THINKING)
    body, events = json.loads(body_of(request)), data_of(events_of(request))
    assert [block["type"] for block in body["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [(block["name"], block["input"]) for block in body["content"][2:]] == CALLS
    assert body["stop_reason"] == "tool_use"
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts] == ["thinking", "text", "tool_use", "tool_use"]
    for index in (2, 3):
        assert starts[index] == {**body["content"][index], "input": {}}
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta" and e["index"] == index]
        assert json.loads("".join(delta["partial_json"] for delta in deltas)) == body["content"][index]["input"]
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1, 2, 3]
    assert next(event["delta"] for event in events if event["type"] == "message_delta")["stop_reason"] == "tool_use"


def test_ollama_has_whole_calls() -> None:
    request = written(TEXTS, "ollama_chat", TOOLS)
    lines = [line["message"] for line in data_of(events_of(request))]
    for messages in (lines, [json.loads(body_of(request))["message"]]):
        calls = [call["function"] for message in messages for call in message.get("tool_calls", ())]
        assert [(call["name"], call["arguments"]) for call in calls] == CALLS
        assert "".join(message["content"] for message in messages) == "Let me look."


@pytest.mark.parametrize("api", ["chat", "messages", "ollama_chat"])
def test_what_turns_out_to_be_no_call_is_content(api: Api) -> None:
    text = "".join(BROKEN)
    request = written(BROKEN, api, TOOLS)
    body = json.loads(body_of(request))
    message = body if api == "messages" else body["message"] if api == "ollama_chat" else body["choices"][0]["message"]
    content = message["content"]
    assert ("".join(block["text"] for block in content) if api == "messages" else content) == text
    assert b"tool_calls" not in body_of(request)
    assert b"tool_use" not in body_of(request)
    assert streamed_content(data_of(events_of(request))) == text


@pytest.mark.parametrize("api", ["chat", "messages", "ollama_chat"])
def test_a_call_that_is_cut_off_is_not_taken_for_a_whole_one(api: Api) -> None:
    request = written(TEXTS[2:6], api, TOOLS, Ended(reason="length"))
    body = json.loads(body_of(request))
    if api == "chat":  # as OpenAI
        (choice,) = body["choices"]
        assert (choice["finish_reason"], choice["message"]["tool_calls"][0]["function"]["arguments"]) == (
            "length",
            '{"city": "Pa',
        )
    elif api == "messages":  # as Anthropic
        (block,) = body["content"]
        assert (body["stop_reason"], block["type"], block["input"]) == ("max_tokens", "tool_use", {})
    else:
        assert "get_weather" not in json.dumps(body)
    for event in data_of(events_of(request)):
        assert "tool_calls" not in event.get("message", {})


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 4])
@pytest.mark.parametrize("api", ["chat", "messages", "ollama_chat"])
def test_a_forced_call_that_is_cut_off_before_its_arguments_shows_no_marks(api: Api, n_tokens: int) -> None:
    texts = ["<tool", '_call>\n{"name": "get_', 'weather", ', '"argum'][:n_tokens]
    request = written(texts, api, FORCED, Ended(reason="length"))
    body, events = json.loads(body_of(request)), data_of(events_of(request))
    is_named = n_tokens >= 3
    assert streamed_content(events) == ""
    if api == "chat":
        (choice,) = body["choices"]
        calls = choice["message"].get("tool_calls", [])
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None if is_named else "")
        assert [call["function"] for call in calls] == [{"name": "get_weather", "arguments": ""}] * is_named
        deltas = [delta for event in events for delta in event["choices"][0]["delta"].get("tool_calls", ())]
        assert deltas == [{"index": 0, **call} for call in calls]
    elif api == "messages":
        (block,) = body["content"]
        shown = (block["type"], block.get("name"), block.get("input"), block.get("text"))
        assert shown == (("tool_use", "get_weather", {}, None) if is_named else ("text", None, None, ""))
        assert body["stop_reason"] == "max_tokens"
        assert [e["content_block"] for e in events if e["type"] == "content_block_start"] == [block]
    else:
        assert (body["message"], body["done_reason"]) == ({"role": "assistant", "content": ""}, "length")


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("texts", [TEXTS, BROKEN])
def test_a_stream_goes_on_after_any_event(api: Api, texts: list[str]) -> None:
    request = written(texts, api, TOOLS)
    events = events_of(request)
    for event in events[:-1]:
        if numbers := [int(line[4:]) for line in event.split(b"\n") if line.startswith(b"id: ")]:
            assert events_of(request, numbers[0]) == events[events.index(event) + 1 :]
