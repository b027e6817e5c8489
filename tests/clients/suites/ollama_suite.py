"""The official ollama client: chat and generate whole and streamed, tools, a format, embeddings, and what it asks of models."""

from __future__ import annotations

import os
from typing import Any

import ollama
import pytest

URL, MODEL = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"]
ASK: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Paris?"}]
OPTIONS = ollama.Options(
    num_ctx=2048, num_predict=8, temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, seed=7, repeat_penalty=1.1, stop=["\n\n"],
    presence_penalty=0.1, frequency_penalty=0.1, num_gpu=0, num_thread=2,
)  # fmt: skip
WARM = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]}


@pytest.fixture
def client() -> Any:
    with ollama.Client(URL) as client:
        yield client


def get_weather(city: str) -> str:
    """The weather.

    Args:
        city: its name
    """
    return f"sunny in {city}"


def test_chat_comes_whole_and_streamed(client: Any) -> None:
    assert client.chat(MODEL, ASK, options=OPTIONS, keep_alive="5m").eval_count
    *_, last = client.chat(MODEL, ASK, options={"num_predict": 8}, stream=True, think=False)
    assert last.done


def test_tools_and_a_format(client: Any) -> None:
    short = {"num_predict": 16, "temperature": 0}
    assert client.chat(MODEL, ASK, tools=[get_weather], options=short).done
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]}
    result = {"role": "tool", "tool_name": "get_weather", "content": "sunny"}
    assert client.chat(MODEL, [*ASK, call, result], tools=[get_weather], options=short).message.content is not None
    assert client.chat(MODEL, ASK, format=WARM, options=short).message.content.startswith("{")
    assert client.chat(MODEL, ASK, format="json", options=short).done


def test_generate_goes_on_with_a_context(client: Any) -> None:
    first = client.generate(MODEL, "Hi", system="Be brief.", options=OPTIONS)
    assert client.generate(MODEL, "And now?", context=first.context, options={"num_predict": 4}).response is not None
    assert client.generate(MODEL, "def f(", raw=True, options={"num_predict": 4}, keep_alive=0).done
    assert [part.done for part in client.generate(MODEL, "Hi", stream=True, options={"num_predict": 2})][-1]


def test_embeddings_and_models(client: Any) -> None:
    generating, embedding = [one.model for one in client.list().models]
    assert generating.removesuffix(":latest") == MODEL
    assert len(client.embed(embedding, ["hello", "world"], truncate=True, dimensions=8).embeddings) == 2
    assert client.embeddings(embedding, "hello").embedding
    assert client.show(embedding).capabilities == ["embedding"]
    assert all(one.size_vram == 0 for one in client.ps().models)
