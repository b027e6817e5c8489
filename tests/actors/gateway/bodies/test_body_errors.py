"""The words of every refusal of a body: the field, what was expected and what came, as the client wrote it."""

from __future__ import annotations

import gzip
import json
from typing import Annotated, Any

import msgspec
import pytest

from actors.gateway.bodies.response_body import ResponsesBody
from actors.gateway.bodies.schema import BatchBody, ChatBody, CompletionBody, GenerateBody, read_body
from actors.gateway.http.endpoints.ollama import OllamaChatBody
from actors.gateway.http.endpoints.tokenize import DetokenizeBody
from actors.gateway.requests.refusals import Refusal, check_one_given, invalid, json_text

ELSE = "anything else is not supported by this server"
HI = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = {"prompt": "hi"}
HALF = r"expected JSON with whole characters, got half of one (\ud800 to \udfff outside of a pair)"


class NamedBody(msgspec.Struct):
    """A body with a string that must not be empty."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


WORDS: list[tuple[type[msgspec.Struct], Any, str, str]] = [
    (ChatBody, HI | {"stop": 5}, "stop", "expected a string or a list, got 5"),
    (ChatBody, HI | {"stop": ["a", 1]}, "stop[1]", "expected a string, got 1"),
    (ChatBody, HI | {"stream": "yes"}, "stream", 'expected true or false, got "yes"'),
    (ChatBody, HI | {"temperature": True}, "temperature", "expected a number, got true"),
    (ChatBody, HI | {"temperature": 1e9}, "temperature", "expected a number <= 100.0, got 1000000000.0"),
    (ChatBody, HI | {"top_p": 0}, "top_p", "expected a number > 0.0, got 0"),
    (ChatBody, HI | {"n": 1.5}, "n", "expected an integer, got 1.5"),
    (ChatBody, HI | {"n": 10**20}, "n", "expected an integer <= 9223372036854775807, got 100000000000000000000"),
    (ChatBody, HI | {"stream_options": 5}, "stream_options", "expected an object, got 5"),
    (
        ChatBody,
        HI | {"reasoning_effort": "huge"},
        "reasoning_effort",
        'expected "none" or "minimal" or "low" or "medium" or "high" or "xhigh" or "max", got "huge"',
    ),
    (
        ResponsesBody,
        {"input": "a", "reasoning": {"effort": "huge"}},
        "reasoning.effort",
        'expected "none" or "minimal" or "low" or "medium" or "high" or "xhigh" or "max", got "huge"',
    ),
    (OllamaChatBody, {"format": "yaml"}, "format", 'expected "json" or an object, got "yaml"'),
    (
        OllamaChatBody,
        {"think": "huge"},
        "think",
        'expected "none" or "minimal" or "low" or "medium" or "high" or "xhigh" or "max" or true or false, got "huge"',
    ),
    (
        CompletionBody,
        {"prompt": "a", "tools": [{"type": "function"}]},
        "tools",
        f'expected an empty list or null ({ELSE}), got [{{"type": "function"}}]',
    ),
    (ChatBody, {}, "messages", "expected a list of messages, got nothing"),
    (ChatBody, {"messages": None}, "messages", "expected a list, got null"),
    (ChatBody, {"messages": "hi"}, "messages", 'expected a list, got "hi"'),
    (ChatBody, {"messages": [{}, 7]}, "messages[1]", "expected an object, got 7"),
    (ChatBody, {"messages": [{}] * 5000}, "messages", "expected a list of at most 4096 items, got 5000 items"),
    (ChatBody, HI | {"model": "x" * 300}, "model", "expected a string of at most 256 characters, got 300 characters"),
    (CompletionBody, {}, "prompt", "expected text, token ids, or a list of either, got nothing"),
    (CompletionBody, {"prompt": {}}, "prompt", "expected a string or a list, got an empty object"),
    (NamedBody, {"name": ""}, "name", "expected a string of at least 1 character, got an empty string"),
    (GenerateBody, TEXT | {"request_id": 5}, "request_id", "expected a string, got 5"),
    (BatchBody, {"tokens": [[1], ["x"]]}, "tokens[1][0]", 'expected an integer, got "x"'),
    (DetokenizeBody, {"tokens": [-1]}, "tokens[0]", "expected an integer >= 0, got -1"),
    (DetokenizeBody, {}, "tokens", "expected a list of token ids, got nothing"),
]


def refused(kind: type[msgspec.Struct], raw: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read_body(raw, kind)
    assert (caught.value.code, caught.value.status) == ("invalid", 400)
    return caught.value


@pytest.mark.parametrize(("kind", "body", "field", "words"), WORDS)
def test_a_wrong_field(kind: type[msgspec.Struct], body: Any, field: str, words: str) -> None:
    refusal = refused(kind, json.dumps(body).encode())
    assert (refusal.field, refusal.detail) == (field, f"{field}: {words}")


def test_a_missing_field_names_the_ignored_one_that_it_may_be() -> None:
    with pytest.raises(Refusal) as caught:
        read_body(json.dumps({"message": HI["messages"], "colour": 1}).encode(), ChatBody, [])
    assert caught.value.detail == 'messages: expected a list of messages, got nothing, and the unknown field "message"'


def test_an_unknown_field_is_told_which_is_meant_and_which_there_are() -> None:
    refusal = refused(ChatBody, json.dumps(HI | {"max_token": 5}).encode())
    assert refusal.field == "max_token"
    assert refusal.detail == "max_token: unknown field; did you mean max_tokens?"
    strange = refused(ChatBody, json.dumps(HI | {"wxyz": 5}).encode())
    assert strange.detail == "wxyz: unknown field; GET /docs shows all fields"
    unlike = refused(ChatBody, json.dumps(HI | {"tool_p": 0.1}).encode())  # looks a little like top_p
    assert unlike.detail == "tool_p: unknown field; GET /docs shows all fields"
    near = refused(ChatBody, json.dumps(HI | {"stream_options": {"includ_usage": True}}).encode())
    assert (near.field, near.detail.partition("; ")[2]) == ("stream_options.includ_usage", "did you mean include_usage?")
    inner = refused(ChatBody, json.dumps(HI | {"stream_options": {"wxyz": True}}).encode())
    assert inner.detail.endswith("; known fields are include_usage, include_obfuscation, continuous_usage_stats")
    long = refused(ChatBody, json.dumps(HI | {"x`\n" * 10_000: 5}).encode())
    assert len(long.detail) < 1000


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "expected a JSON object, got an empty body"),
        (b'{"prompt": "a', "expected complete JSON, got JSON that ends at byte 13"),
        (b'{"a" 1}', "expected JSON, got malformed JSON at byte 5: expected ':'"),
        (b'{"a": 1}x', "expected JSON, got malformed JSON at byte 9: trailing characters"),
        (b'{"a": "\xff"}', "expected UTF-8, got other bytes"),
        (rb'{"a": "\ud800"}', HALF),
        (rb'{"a": ["\uD83Dx"]}', HALF),
        (rb'{"a": "\ud800 and more text"}', HALF),
        (rb'{"a": "\udc00"}', HALF),
        (rb'{"a": "\ud83d', "expected complete JSON, got JSON that ends at byte 13"),
        (gzip.compress(b"{}", mtime=0), "expected JSON, got compressed bytes; send it without Content-Encoding"),
        (b"[" * 100_000, "expected JSON, got lists or objects that are nested too deeply"),
        (b'{"temperature": 1e999}', "expected JSON with numbers in the range of 64 bits, got a number outside of it"),
        (b"null", "expected a JSON object, got null"),
        (b"[]", "expected a JSON object, got an empty list"),
        (b"[1, 2]", "expected a JSON object, got [1, 2]"),
    ],
)
def test_a_body_that_is_no_json_object(raw: bytes, words: str) -> None:
    refusal = refused(ChatBody, raw)
    assert (refusal.field, refusal.detail) == ("", f"body: {words}")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-1.5, "-1.5"),
        ("", "an empty string"),
        ([], "an empty list"),
        ({}, "an empty object"),
        ("naïve 東京", '"naïve 東京"'),
        ({"a": [None, "x"]}, '{"a": [null, "x"]}'),
    ],
)
def test_a_value_is_shown_as_json(value: Any, words: str) -> None:
    assert json_text(value) == words
    assert invalid("x", "a y", value).detail == f"x: expected a y, got {words}"


def test_exactly_one_of_two_fields() -> None:
    check_one_given(prompt="", tokens=None)
    for tokens, got in ((None, "neither"), ([1], "both")):
        with pytest.raises(Refusal, match=f"prompt: expected exactly one of prompt and tokens, got {got}"):
            check_one_given(prompt=tokens and "x", tokens=tokens)


def test_what_was_passed_over_may_be_what_was_meant() -> None:
    with pytest.raises(Refusal, match=r'of prompt and tokens, got neither, and the unknown field "inputs"$'):
        check_one_given(["inputs"], prompt=None, tokens=None)
    with pytest.raises(Refusal, match=r'of prompt, tokens and messages, got none, and the unknown field "a", "b", "c", "d"$'):
        check_one_given(["a", "b", "c", "d", "e"], prompt=None, tokens=None, messages=None)
    with pytest.raises(Refusal, match=r"of prompt, tokens and messages, got 2$"):
        check_one_given(prompt="", tokens=[], messages=None)


def test_only_the_beginning_of_a_large_value_is_shown() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in ("x" * 10**6, [1] * 10**6, [[1] * 10**6], {"x" * 10**6: 1}, {str(i): i for i in range(10**5)}, deep):
        assert len(json_text(value)) <= 121


def test_a_prompt_at_the_wrong_endpoint_is_told_the_right_one() -> None:
    chat, plain = refused(ChatBody, json.dumps(TEXT).encode()), refused(CompletionBody, json.dumps(HI).encode())
    assert chat.detail == "prompt: unknown field; /v1/completions takes it"
    assert plain.detail == "messages: unknown field; /v1/chat/completions takes it"
