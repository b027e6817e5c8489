"""LlamaIndex over its OpenAI-like model: chat, streams, structured prediction, and an agent that calls a function."""

from __future__ import annotations

import os
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

URL, MODEL = os.environ["CLIENT_URL"] + "/v1", os.environ["CLIENT_MODEL"]


class Weather(BaseModel):
    """The weather."""

    is_sunny: bool
    degrees: int


def model(**options: Any) -> OpenAILike:
    fixed: dict[str, Any] = {"api_base": URL, "api_key": "none", "is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(model=MODEL, context_window=8192, max_tokens=64, temperature=0, max_retries=0, **fixed, **options)


def test_chat_and_completion_stream_and_come_whole() -> None:
    said = [ChatMessage(role="user", content="Say hello.")]
    assert model().chat(said).message.content
    assert [chunk.delta for chunk in model().stream_chat(said)]
    assert model().complete("Hello").text


async def test_a_prediction_has_the_form_of_a_class() -> None:
    asked = PromptTemplate("What is the weather in {city}?")
    assert isinstance(await model().astructured_predict(Weather, asked, city="Paris"), Weather)


class ForcedOnce(OpenAILike):
    """A small model does not decide to call a function: the first turn is forced to."""

    def _prepare_chat_with_tools(self, tools: Any, *args: Any, chat_history: Any = None, **options: Any) -> dict[str, Any]:
        is_first = not any(message.role == "tool" for message in chat_history or ())
        options["tool_required"] = is_first
        return super()._prepare_chat_with_tools(tools, *args, chat_history=chat_history, **options)


async def test_an_agent_calls_a_function_and_goes_on_with_its_result() -> None:
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return "sunny, 25 degrees"

    forced = ForcedOnce(**model().model_dump(include=set(OpenAILike.model_fields)))
    tools = [FunctionTool.from_defaults(get_weather)]
    for streaming in (False, True):
        agent = FunctionAgent(tools=tools, llm=forced, streaming=streaming, allow_parallel_tool_calls=False)
        answer = await agent.run("What is the weather in Paris?")
        assert asked
        assert isinstance(str(answer), str)
        asked.clear()
