"""A real server flooded by one tenant, with long prompts, more streams than the bounds allow, and streams that nobody reads:
another tenant gets all of its answers, and they are right."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.key_commands import keys
from tests.support.real_server import RealServer, real_server
from tests.support.waiting import DEADLINE_S

N_FLOOD, N_OTHER, N_TOKENS = 60, 12, 24
FLAGS = (
    "--model", "hash-chain", "--api-keys", "--max-length", "4096",
    *("--set", "worker.hash_chain_step_s=0.002", "--set", "worker.n_slots=8", "--set", "worker.max_step_tokens=64"),
    *("--set", "gateway.max_queued_tokens=40000", "--set", "gateway.max_active_requests=64"),
    *("--set", "scheduler.degraded_wait_s=0.2", "--set", "gateway.degraded_max_tokens=4000"),
)  # fmt: skip
FLOOD_PROMPT = [(i * 7) % 900 for i in range(3000)]


def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def flood(http: httpx.AsyncClient, key: str, refused: list[httpx.Response], is_over: asyncio.Event) -> None:
    """Ask for streams of long prompts, and leave each of them unread for a while; ask again when one is refused."""
    number = 0
    while not is_over.is_set():
        number += 1
        body = {"prompt": [number % 900, *FLOOD_PROMPT], "max_tokens": 400, "stream": True, "temperature": 0}
        async with http.stream("POST", "/v1/completions", json=body, headers=headers(key)) as answer:
            if answer.status_code != 200:
                await answer.aread()
                refused.append(answer)
            with suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), 0.05 if answer.status_code != 200 else 0.5)


async def ask(http: httpx.AsyncClient, key: str, number: int) -> None:
    """One request of the other tenant: accepted at once, and right."""
    prompt = [number, 5, 7, 11]
    body = {"prompt": prompt, "max_tokens": N_TOKENS, "temperature": 0}
    answer = await http.post("/v1/completions", json=body, headers=headers(key))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["text"] == ids_text(oracle(prompt, N_TOKENS))


async def drill(server: RealServer, state: Path) -> None:
    flooder, other = (keys(state, "add", "--tenant", tenant) for tenant in ("flooder", "other"))
    refused: list[httpx.Response] = []
    is_over = asyncio.Event()
    limits = httpx.Limits(max_connections=N_FLOOD + 8)
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, limits=limits) as http,
        asyncio.timeout(DEADLINE_S * 3),
    ):
        work = [asyncio.ensure_future(flood(http, flooder, refused, is_over)) for _ in range(N_FLOOD)]
        while not refused:
            await asyncio.sleep(0.01)
        for number in range(N_OTHER):
            await ask(http, other, number)
        is_over.set()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    codes = {answer.json()["error"]["code"] for answer in refused}
    assert {answer.status_code for answer in refused} == {429}
    assert codes <= {"caller_share", "queue_full", "shed"}
    assert codes & {"caller_share", "shed"}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)


@pytest.mark.long  # `make test` simulates floods: tests/simulation/test_floods.py
def test_another_tenant_is_served_beside_a_flood(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with real_server(*FLAGS, "--state-dir", str(state)) as server:
        asyncio.run(drill(server, state))
