"""The official openai client: chat, completions, Responses, embeddings and models, with the options that programs use."""

from __future__ import annotations

import os
from typing import Any

import openai
import pytest
from pydantic import BaseModel

URL, MODEL = os.environ["CLIENT_URL"] + "/v1", os.environ["CLIENT_MODEL"]
ASK: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Paris?"}]
WARM = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"], "additionalProperties": False}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WARM}}
OPTIONS: dict[str, Any] = {
    "temperature": 0.2, "top_p": 0.9, "seed": 7, "n": 2, "stop": ["\n\n"], "frequency_penalty": 0.1, "presence_penalty": 0.1,
    "logit_bias": {"5": -1}, "logprobs": True, "top_logprobs": 2, "user": "me", "metadata": {"a": "b"}, "store": False,
    "service_tier": "auto", "max_completion_tokens": 8,
}  # fmt: skip


class Verdict(BaseModel):
    is_warm: bool
    degrees: int


@pytest.fixture
def client() -> Any:
    with openai.OpenAI(base_url=URL, api_key="none", max_retries=0) as client:
        yield client


def test_chat_comes_whole_and_streamed(client: Any) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=ASK, **OPTIONS)
    assert len(whole.choices) == 2
    streamed = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    *_, last = list(streamed)
    assert last.usage.completion_tokens > 0


def test_a_forced_call_and_its_result(client: Any) -> None:
    terms: dict[str, Any] = {"model": MODEL, "tools": [TOOL], "max_tokens": 32, "temperature": 0}
    choice = {"type": "function", "function": {"name": "get_weather"}}
    said = client.chat.completions.create(messages=ASK, tool_choice=choice, parallel_tool_calls=False, **terms)
    (call,) = said.choices[0].message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    after = [*ASK, said.choices[0].message, result]
    assert client.chat.completions.create(messages=after, tool_choice="auto", **terms).choices


def test_parts_and_a_schema(client: Any) -> None:
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Is Paris warm?"}]}]
    parsed = client.chat.completions.parse(model=MODEL, messages=parts, response_format=Verdict, max_tokens=64, temperature=0)
    assert isinstance(parsed.choices[0].message.parsed, Verdict)
    found = client.chat.completions.create(
        model=MODEL,
        messages=parts,
        response_format={"type": "json_object"},
        max_tokens=16,
        extra_body={"top_k": 5, "min_p": 0.1},
    )
    assert found.choices[0].message.content


def test_completions(client: Any) -> None:
    done = client.completions.create(
        model=MODEL, prompt=["Hello", "Bye"], max_tokens=4, logprobs=1, echo=True, best_of=1, suffix=None, stop="."
    )
    assert len(done.choices) == 2
    assert client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=2).choices
    assert list(client.completions.create(model=MODEL, prompt="Hello", max_tokens=2, stream=True))


def test_responses(client: Any) -> None:
    first = client.responses.create(model=MODEL, input="Hi", instructions="Be brief.", max_output_tokens=16)
    assert first.output_text is not None
    flat = {"type": "function", "name": "get_weather", "parameters": WARM, "strict": True}
    called = client.responses.create(
        model=MODEL, input=ASK, tools=[flat], tool_choice={"type": "function", "name": "get_weather"}, max_output_tokens=32
    )
    (call,) = [item for item in called.output if item.type == "function_call"]
    items = [*ASK, *called.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    with client.responses.stream(model=MODEL, input=items, max_output_tokens=16, reasoning={"effort": "low"}) as stream:
        assert [event.type for event in stream][-1] in ("response.completed", "response.incomplete")
    parsed = client.responses.parse(
        model=MODEL, input="Is Paris warm?", text_format=Verdict, max_output_tokens=64, temperature=0
    )
    assert isinstance(parsed.output_parsed, Verdict)


def test_embeddings_and_models(client: Any) -> None:
    generating, embedding = [one.id for one in client.models.list()]
    assert generating == MODEL
    made = client.embeddings.create(model=embedding, input=["hello", "world"], dimensions=8)
    assert [len(one.embedding) for one in made.data] == [8, 8]
    assert client.embeddings.create(model=embedding, input="hello", encoding_format="float").data
