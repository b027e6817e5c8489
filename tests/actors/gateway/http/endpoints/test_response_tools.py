"""Functions and reasoning over /v1/responses, under the official client, and after the death of a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from actors.gateway.text.models.folder_text import FolderText
from tests.support.answers.calling_server import CALL, calling_server
from tests.support.answers.client_libraries import openai
from tests.support.gateway.thinking.thinking_server import THOUGHT, answer_after_a_kill
from tests.support.waiting import DEADLINE_S

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "name": "get_weather", "description": "The weather of a city", "parameters": PARAMETERS}
ASKED: dict[str, Any] = {"model": "m", "input": "What is the weather in Paris?", "tools": [WEATHER]}


def data_of(stream: str) -> list[str]:
    return [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data: ")]


async def test_a_tool_loop_over_previous_responses(smollm2_text_folder: Path, smollm2_text: FolderText) -> None:
    async with calling_server(smollm2_text_folder, smollm2_text, with_socket=True) as r:
        host, port = r.address
        client = openai.AsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="any", timeout=DEADLINE_S, max_retries=0)
        async with client:
            whole: Any = await client.responses.create(
                **ASKED, parallel_tool_calls=False, reasoning={"effort": "low", "summary": "auto"}
            )
            assert [item.type for item in whole.output] == ["reasoning", "function_call"]
            thought, call = whole.output
            assert (thought.content[0].text, call.name, json.loads(call.arguments)) == (
                "I wonder.",
                "get_weather",
                {"city": "Paris"},
            )
            assert (whole.tools[0].name, whole.tool_choice, whole.reasoning.effort) == ("get_weather", "auto", "low")
            assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens
            result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
            told: dict[str, Any] = {**ASKED, "input": [result], "reasoning": {"effort": "none"}}
            second = await client.responses.create(**told, previous_response_id=whole.id)
            assert second.output_text == "It is sunny."
            prompt = smollm2_text.decode(r.scheduler().submits[-1].tokens.tolist())
            assert prompt.index("Paris?") < prompt.index('{"name": "get_weather", "arguments"') < prompt.index("sunny")
            assert "wonder" not in prompt
            items = await client.responses.input_items.list(second.id, order="asc")
            assert [item.type for item in items.data] == ["message", "reasoning", "function_call", "function_call_output"]
            async with client.responses.stream(**ASKED) as stream:
                events = [event async for event in stream]
                final: Any = await stream.get_final_response()
            assert [item.type for item in final.output] == ["reasoning", "function_call"]
            assert json.loads(final.output[1].arguments) == {"city": "Paris"}
            again = await client.responses.retrieve(final.id, stream=True, starting_after=events[9].sequence_number)
            assert [one.sequence_number async for one in again] == [event.sequence_number for event in events[10:]]
            sent_back: Any = [{"role": "user", "content": "Hi"}, *[item.model_dump() for item in final.output], result]
            third = await client.responses.create(**{**told, "input": sent_back})
            assert third.output_text == "It is sunny.", "what a client sends back of an answer is read as that answer"


async def test_a_gateway_that_dies_within_a_call_loses_nothing(
    tmp_path: Path, smollm2_text_folder: Path, smollm2_text: FolderText
) -> None:
    body, journal = {**ASKED, "stream": True}, str(tmp_path / "journal")
    n_before = len(smollm2_text.encode(f"{THOUGHT}\n</think>\n\n{CALL[: CALL.index('Paris')]}", add_special_tokens=False))
    async with calling_server(smollm2_text_folder, smollm2_text, journal_path=journal) as r:
        told = data_of((await answer_after_a_kill(r, "/v1/responses", body, n_before)).decode())
        async with r.http() as client:
            numbers = [json.loads(data)["sequence_number"] for data in told]
            for at, number in list(enumerate(numbers))[:-1:4]:
                rest = (await client.get(f"/v1/responses/one?stream=true&starting_after={number}")).text
                assert data_of(rest) == told[at + 1 :]
            shown = (await client.get("/v1/responses/one")).json()
    assert [item["type"] for item in shown["output"]] == ["reasoning", "function_call"]
    parts = list(map(json.loads, told))
    deltas = [part["delta"] for part in parts if part["type"] == "response.function_call_arguments.delta"]
    assert json.loads("".join(deltas)) == {"city": "Paris"}
