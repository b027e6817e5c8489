"""The official anthropic client: messages whole and streamed, tools, thinking, an output format, counts of tokens."""

from __future__ import annotations

import os
from typing import Any

import anthropic
import pytest

URL, MODEL = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"]
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
WARM = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"], "additionalProperties": False}
TOOL: Any = {"name": "get_weather", "description": "The weather", "input_schema": WARM}


@pytest.fixture
def client() -> Any:
    with anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0) as client:
        yield client


def test_messages_come_whole_and_streamed(client: Any) -> None:
    cached = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    whole = client.messages.create(
        model=MODEL, max_tokens=16, messages=ASK, system=[cached], stop_sequences=["\n\n"],
        metadata={"user_id": "me"}, service_tier="auto", extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 20},
    )  # fmt: skip
    assert whole.usage.output_tokens > 0
    with client.messages.stream(model=MODEL, max_tokens=16, messages=ASK, system="Be brief.") as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().content[0].text == text


def test_a_forced_call_and_its_result(client: Any) -> None:
    terms: dict[str, Any] = {"model": MODEL, "max_tokens": 32, "tools": [TOOL], "extra_body": {"temperature": 0}}
    called = client.messages.create(messages=ASK, tool_choice={"type": "tool", "name": "get_weather"}, **terms)
    (call,) = [block for block in called.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    after = [*ASK, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    auto = {"type": "auto", "disable_parallel_tool_use": True}
    assert client.messages.create(messages=after, tool_choice=auto, **terms).stop_reason
    assert client.messages.count_tokens(model=MODEL, messages=after, tools=[TOOL]).input_tokens > 0


@pytest.mark.parametrize("max_tokens", [1, 8, 14, 17])
def test_a_forced_call_that_is_cut_off_is_read_whole_and_streamed(client: Any, max_tokens: int) -> None:
    terms: dict[str, Any] = {"model": MODEL, "max_tokens": max_tokens, "messages": ASK, "tools": [TOOL]}
    terms |= {"tool_choice": {"type": "any"}, "extra_body": {"temperature": 0}}
    whole = client.messages.create(**terms)
    with client.messages.stream(**terms) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        (block,) = message.content
        assert message.stop_reason == "max_tokens"
        assert block.input == {} if block.type == "tool_use" else block.text == ""
    assert whole.content[0].type == streamed.content[0].type == ("tool_use" if max_tokens > 12 else "text")


def test_a_tool_runner_shows_the_model_the_whole_conversation(client: Any) -> None:
    heard: list[bool] = []

    @anthropic.beta_tool
    def is_warm(warm: bool) -> str:
        """Whether it is warm."""
        heard.append(warm)
        return "sunny"

    terms: dict[str, Any] = {"model": MODEL, "max_tokens": 40, "messages": ASK, "extra_body": {"temperature": 0}}
    choice = {"type": "tool", "name": "is_warm"}
    messages = list(client.beta.messages.tool_runner(**terms, tools=[is_warm], tool_choice=choice, max_iterations=2))
    assert [message.stop_reason for message in messages] == ["tool_use", "tool_use"]
    assert len(heard) > 0
    assert messages[1].usage.input_tokens + messages[1].usage.cache_read_input_tokens > messages[0].usage.input_tokens


def test_thinking_and_an_output_format(client: Any) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert client.messages.create(model=MODEL, max_tokens=1100, messages=ASK, thinking=thinking, stop_sequences=["."]).content
    output = {"format": {"type": "json_schema", "schema": WARM}}
    assert client.messages.create(model=MODEL, max_tokens=32, messages=ASK, output_config=output).content
    assert next(iter(client.models.list())).id == MODEL
