"""Answers of /v1/responses with several items: reasoning, text and calls, whole, streamed, and read on from any number."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter

from actors.gateway.http.formats.responses.events import FIRST_OF_SPLIT, event_before
from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Ended, ResponseTerms
from actors.gateway.text.channels import Splitting
from actors.gateway.text.reasoning_text import ReasoningMarks
from actors.gateway.text.tools.dialects import Dialect, ToolRules
from tests.support.answers.written_answer import body_of, events_of, written

RULES = ToolRules(Dialect.HERMES, ["get_weather", "now"])
TOOLS = Splitting(reasoning=ReasoningMarks("<think>", "</think>"), tools=RULES)
TEXT = (
    '<think>\nI think.\n</think>\n\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n'
    '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
BROKEN = 'So<tool_call>{"name": "now", "arguments": {"a": b}}</tool_call>'
PYTHON = "[now(), get_weather(city='Paris'), now()]"
STOP, CUT, FAILED = Ended(reason="stop"), Ended(reason="length"), Ended(reason="failed", code="internal")


def answer(texts: list[str], ended: Ended = STOP, splitting: Splitting = TOOLS) -> Request:
    shown = ResponseTerms(
        shown=json.dumps({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}).encode(), items=b"[]"
    )
    return written(texts, "responses", splitting, ended, shown)


def cuts(text: str) -> list[list[str]]:
    """The text as tokens of each length, and as one."""
    return [[text[at : at + n] for at in range(0, len(text), n)] for n in (1, 3, 7, len(text))]


def parts_of(events: list[bytes]) -> list[dict[str, Any]]:
    """OpenAI's events in those of a stream. Each has the name that its data says."""
    parts = [part.split("\n") for part in b"".join(events).decode().split("\n\n") if part]
    for event, data, *_ in parts:
        assert event == "event: " + json.loads(data.removeprefix("data: "))["type"]
    return [json.loads(data.removeprefix("data: ")) for _, data, *_ in parts]


def shape_of(item: dict[str, Any]) -> tuple[str, ...]:
    if item["type"] == "function_call":
        return item["type"], item["status"], item["name"], item["arguments"]
    (part,) = item["content"]
    return item["type"], item["status"], part["text"]


def joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as the deltas say; each ends as it was told piece by piece."""
    items: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    for part in parts:
        kind, index = part["type"], part.get("output_index", -1)
        if kind == "response.output_item.added":
            assert (index, part["item"]["status"]) == (len(items), "in_progress")
            items.append(part["item"])
            texts[index] = ""
        elif kind.endswith(".delta"):
            texts[index] += part["delta"]
            assert part["item_id"] == items[index]["id"]
        elif kind.endswith(("text.done", "arguments.done")):
            assert part.get("text", part.get("arguments")) == texts[index]
        elif kind == "response.output_item.done":
            assert part["item"]["id"] == items[index]["id"]
            items[index] = part["item"]
            assert shape_of(part["item"])[-1] == texts[index]
    return items


@pytest.mark.parametrize("texts", cuts(TEXT))
def test_an_item_for_each_run_of_the_text(texts: list[str]) -> None:
    request = answer(texts)
    body, parts = json.loads(body_of(request)), parts_of(events_of(request))
    assert [shape_of(item) for item in body["output"]] == [
        ("reasoning", "completed", "I think."),
        ("message", "completed", "Let me look."),
        ("function_call", "completed", "get_weather", '{"city": "Paris"}'),
        ("function_call", "completed", "now", "{}"),
    ]
    assert len({item["id"] for item in body["output"]}) == 4
    assert body["output"][2]["call_id"] != body["output"][3]["call_id"]
    assert (body["usage"]["output_tokens_details"]["reasoning_tokens"] > 0) is (len(texts) > 1)
    assert joined(parts) == body["output"]
    assert (parts[-1]["type"], parts[-1]["response"]) == ("response.completed", body)


@pytest.mark.parametrize("texts", [texts for text in (TEXT, BROKEN, PYTHON) for texts in cuts(text)])
@pytest.mark.parametrize("ended", [STOP, CUT, FAILED])
def test_a_stream_goes_on_after_any_number(texts: list[str], ended: Ended) -> None:
    rules = Splitting(tools=ToolRules(Dialect.PYTHONIC, RULES.names)) if "".join(texts) == PYTHON else TOOLS
    request = answer(texts, ended, rules)
    parts = parts_of(events_of(request))
    numbers = [part["sequence_number"] for part in parts]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > FIRST_OF_SPLIT
    for at, number in enumerate(numbers):
        assert parts_of(events_of(request, event_before(number))) == parts[at + 1 :]


@cache
def one_event() -> TypeAdapter[Any]:
    """The types of the official client, which takes long to import: only here, not where tests are collected."""
    from openai.types.responses import ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize("texts", [*cuts(TEXT), *cuts(BROKEN)])
@pytest.mark.parametrize("ended", [STOP, CUT])
def test_the_official_client_reads_every_event(texts: list[str], ended: Ended) -> None:
    """It raises nothing: its types and its state refuse an event that does not fit those before it."""
    from openai import omit
    from openai.lib.streaming.responses._responses import ResponseStreamState

    request = answer(texts, ended)
    state: Any = ResponseStreamState(input_tools=[], text_format=omit)
    for part in parts_of(events_of(request)):
        state.handle_event(one_event().validate_python(part))


@pytest.mark.parametrize("texts", cuts(BROKEN))
def test_what_turns_out_to_be_no_call_is_text(texts: list[str]) -> None:
    request = answer(texts)
    output = json.loads(body_of(request))["output"]
    assert {item["type"] for item in output} == {"message"}
    assert "".join(item["content"][0]["text"] for item in output) == BROKEN
    items = joined(parts_of(events_of(request)))
    assert [item for item in items if item["type"] == "message"] == output
    assert all(item["status"] == "incomplete" for item in items if item["type"] == "function_call")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", [("message", "incomplete", "")]),
        ("<think>\nI th", [("reasoning", "incomplete", "I th")]),
        ("Let me", [("message", "incomplete", "Let me")]),
        (TEXT[TEXT.index("<tool") : TEXT.index('is"}')], [("function_call", "incomplete", "get_weather", '{"city": "Par')]),
    ],
)
def test_an_answer_that_is_cut_off(text: str, shapes: list[tuple[str, ...]]) -> None:
    request = answer(list(text), CUT)
    body, parts = json.loads(body_of(request)), parts_of(events_of(request))
    assert [shape_of(item) for item in body["output"]] == shapes
    assert joined(parts) == body["output"]
    assert (body["status"], parts[-1]["type"]) == ("incomplete", "response.incomplete")
    failed = parts_of(events_of(answer(list(text), FAILED)))
    assert failed[-1]["type"] == "response.failed"
    assert not any(part["type"] == "response.output_item.done" for part in failed)
