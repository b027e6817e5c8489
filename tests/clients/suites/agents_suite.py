"""openai-agents with a loop of tool calls, over chat completions and over Responses, whole and streamed."""

from __future__ import annotations

import os

import pytest
from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

URL, MODEL = os.environ["CLIENT_URL"] + "/v1", os.environ["CLIENT_MODEL"]
CONFIG = RunConfig(tracing_disabled=True)
QUESTION = "What is the weather in Paris?"


class Verdict(BaseModel):
    is_warm: bool
    degrees: int


def model_of(api: str, client: AsyncOpenAI) -> Model:
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
    return kind(model=MODEL, openai_client=client)


def agent_of(api: str, client: AsyncOpenAI, asked: list[str]) -> Agent[None]:
    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        asked.append(city)
        return "sunny, 25 degrees"

    # the choice is forced for the first turn alone: then the agent asks with "auto"
    settings = ModelSettings(temperature=0, max_tokens=48, tool_choice="get_weather", parallel_tool_calls=False)
    return Agent(
        name="weather", instructions="Answer.", model=model_of(api, client), tools=[get_weather], model_settings=settings
    )


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_tool_is_called_and_its_result_is_read(api: str) -> None:
    asked: list[str] = []
    async with AsyncOpenAI(base_url=URL, api_key="none") as client:
        result = await Runner.run(agent_of(api, client, asked), QUESTION, max_turns=8, run_config=CONFIG)
    assert asked
    assert isinstance(result.final_output, str)
    kinds = [item.type for item in result.new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"]
    assert kinds[-1] == "message_output_item"


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_streamed_run_does_the_same(api: str) -> None:
    asked: list[str] = []
    async with AsyncOpenAI(base_url=URL, api_key="none") as client:
        result = Runner.run_streamed(agent_of(api, client, asked), QUESTION, max_turns=8, run_config=CONFIG)
        kinds = [event.type async for event in result.stream_events()]
    assert asked
    assert "raw_response_event" in kinds
    assert isinstance(result.final_output, str)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_agent_answers_with_an_object(api: str) -> None:
    async with AsyncOpenAI(base_url=URL, api_key="none") as client:
        settings = ModelSettings(temperature=0, max_tokens=64)
        agent = Agent(name="judge", model=model_of(api, client), output_type=Verdict, model_settings=settings)
        result = await Runner.run(agent, QUESTION, run_config=CONFIG)
    assert isinstance(result.final_output, Verdict)
