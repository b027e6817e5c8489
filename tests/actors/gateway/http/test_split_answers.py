"""Reasoning beside content, in each API's own form: streamed and whole, and streamed on from any event."""

from __future__ import annotations

import json

import pytest

from actors.gateway.requests.request_spec import Api, Ended
from tests.support.answers.written_answer import OPEN_THINK, THINK, body_of, events_of, written

TEXTS = ["<th", "ink>", "\nI ", "think", "", ".\n</thi", "nk>\n\n", "So", " I am.", "\n"]
APIS: tuple[Api, ...] = ("chat", "messages", "ollama_chat", "ollama_generate")


def data_of(events: list[bytes]) -> list[dict]:
    """The JSON of every `data:` line, and of every line of NDJSON."""
    lines = [line.removeprefix(b"data: ") for event in events for line in event.split(b"\n")]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def test_a_chat_has_reasoning_under_both_names() -> None:
    request = written(TEXTS, "chat", THINK)
    deltas = [chunk["choices"][0]["delta"] for chunk in data_of(events_of(request)) if chunk["choices"]]
    for name, text in (("reasoning_content", "I think."), ("reasoning", "I think."), ("content", "So I am.\n")):
        assert "".join(delta.get(name, "") for delta in deltas) == text
    body = json.loads(body_of(request))
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["reasoning"], message["content"]) == ("I think.", "I think.", "So I am.\n")
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


def test_a_message_has_a_block_of_thinking_and_one_of_text() -> None:
    request = written(TEXTS, "messages", THINK)
    events, blocks = data_of(events_of(request)), json.loads(body_of(request))["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    starts = [event for event in events if event["type"] == "content_block_start"]
    stops = [event for event in events if event["type"] == "content_block_stop"]
    assert [(s["index"], s["content_block"]["type"]) for s in starts] == [(0, "thinking"), (1, "text")]
    assert [s["index"] for s in stops] == [0, 1]
    for index, (kind, field) in enumerate((("thinking_delta", "thinking"), ("text_delta", "text"))):
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta" and e["index"] == index]
        assert "".join(d[field] for d in deltas if d["type"] == kind) == blocks[index][field]
    signed = [e["delta"]["signature"] for e in events if e.get("delta", {}).get("type") == "signature_delta"]
    assert signed == [blocks[0]["signature"]]


@pytest.mark.parametrize("api", ["ollama_chat", "ollama_generate"])
def test_ollama_has_thinking(api: Api) -> None:
    request = written(TEXTS, api, THINK)
    lines = [*data_of(events_of(request)), json.loads(body_of(request))]
    shown = [line["message"] if api == "ollama_chat" else line for line in lines]
    content = "content" if api == "ollama_chat" else "response"
    assert "".join(s.get("thinking", "") for s in shown[:-1]) == shown[-1]["thinking"] == "I think."
    assert "".join(s[content] for s in shown[:-1]) == shown[-1][content] == "So I am.\n"


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("splitting", [THINK, OPEN_THINK, None])
def test_a_stream_goes_on_after_any_event(api: Api, splitting) -> None:
    request = written(TEXTS, api, splitting)
    events = events_of(request)
    numbered = [(number, event) for event in events if (number := _number_of(event))]
    for number, event in numbered[:-1]:
        assert events_of(request, number) == events[events.index(event) + 1 :]


@pytest.mark.parametrize("texts", [[], ["<think>", "cut off"], ["<think></think>"], ["\n", "<thi"]])
@pytest.mark.parametrize("ended", [Ended(reason="length"), Ended(reason="failed", code="internal")])
def test_an_answer_without_content_is_well_formed(texts: list[str], ended: Ended) -> None:
    for api in APIS:
        events = data_of(events_of(written(texts, api, THINK, ended)))
        if api == "messages" and not ended.is_failure:
            starts, stops = ([e for e in events if e["type"] == f"content_block_{kind}"] for kind in ("start", "stop"))
            assert len(starts) == len(stops) == 1
        if not ended.is_failure:
            json.loads(body_of(written(texts, api, THINK, ended)))


def _number_of(event: bytes) -> int:
    lines = [line for line in event.split(b"\n") if line.startswith(b"id: ")]
    return int(lines[0][4:]) if lines else 0
