"""litellm's calls to an OpenAI-compatible server, to Anthropic's API and to Ollama's: one server is all three."""

from __future__ import annotations

import os
from typing import Any

import litellm
import pytest
from pydantic import BaseModel

BASE, NAME = os.environ["CLIENT_URL"], os.environ["CLIENT_MODEL"]
APIS = {
    "openai": {"model": f"openai/{NAME}", "api_base": BASE + "/v1"},
    "hosted_vllm": {"model": f"hosted_vllm/{NAME}", "api_base": BASE + "/v1"},
    "anthropic": {"model": f"anthropic/{NAME}", "api_base": BASE},
    "ollama_chat": {"model": f"ollama_chat/{NAME}", "api_base": BASE},
}
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
TERMS: dict[str, Any] = {"api_key": "none", "max_tokens": 48, "temperature": 0, "num_retries": 0}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]},
    },
}


class Weather(BaseModel):
    is_sunny: bool
    degrees: int


@pytest.mark.parametrize("api", APIS)
async def test_answers_come_whole_and_streamed(api: str) -> None:
    whole: Any = await litellm.acompletion(messages=ASK, **APIS[api], **TERMS)
    stream: Any = await litellm.acompletion(messages=ASK, stream=True, **APIS[api], **TERMS)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == whole.choices[0].message.content
    assert whole.usage.completion_tokens > 0


@pytest.mark.parametrize("api", ["openai", "hosted_vllm", "anthropic"])
async def test_a_forced_call_comes_whole_and_streamed(api: str) -> None:
    forced = {"tools": [TOOL], "tool_choice": "required"}
    whole: Any = await litellm.acompletion(messages=ASK, **forced, **APIS[api], **TERMS)
    assert whole.choices[0].message.tool_calls[0].function.name == "get_weather"
    stream: Any = await litellm.acompletion(messages=ASK, stream=True, **forced, **APIS[api], **TERMS)
    built: Any = litellm.stream_chunk_builder([chunk async for chunk in stream], messages=ASK)
    assert built.choices[0].message.tool_calls[0].function.name == "get_weather"


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_has_the_form_of_a_class(api: str) -> None:
    answer: Any = await litellm.acompletion(messages=ASK, response_format=Weather, **APIS[api], **TERMS)
    assert Weather.model_validate_json(answer.choices[0].message.content)


async def test_responses_and_anthropic_messages_pass_through() -> None:
    response: Any = await litellm.aresponses(input="Hi", max_output_tokens=8, **APIS["openai"], api_key="none")
    assert response.status in ("completed", "incomplete")
    message: Any = await litellm.anthropic_messages(messages=ASK, max_tokens=8, **APIS["openai"], api_key="none")
    assert message["type"] == "message"
