"""A real server with several gateways and a tenant with limits: what its accounts count is what clients have got, although
processes are killed, and its limits hold for all gateways together and over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from supervisor.usage.tenant_lines import tenant_lines
from tests.support.fuzz.fuzz_case import check_inventory
from tests.support.key_commands import keys
from tests.support.real_server import RealServer, real_server
from tests.support.waiting import DEADLINE_S

FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.005")
VICTIMS = ("gateway/1", "accounts/0", "gateway/2", "accounts/0", "accounts/0", "gateway/3")
N_TOKENS, N_STREAMS = 150, 12
POLICY = "api_keys = true\n[tenants.acme]\ntokens_per_day = 100000\nmax_sequences = 40\ntokens_per_min = 1000000\n"


async def stream(http: httpx.AsyncClient, key: str, name: str, has_begun: asyncio.Semaphore) -> int:
    """The tokens of one stream over one connection, with those of its prompt."""
    body = {"prompt": [5, 6, 7], "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": name}
    n_lines = 0
    try:
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["x-ratelimit-limit-tokens"] == "1000000"
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    n_lines += 1
                    if n_lines == 10:
                        has_begun.release()
    finally:
        has_begun.release()
    assert n_lines == N_TOKENS + 1, "each token, and the chunk of the end"
    return 3 + N_TOKENS


def counted(server: RealServer) -> tuple[float, float]:
    """Tokens that the accounts have counted today, and open sequences."""
    report = server.status()
    figures = next(child.statistics for child in report.children if child.name == "accounts/0")
    assert not figures or len(tenant_lines(report)) <= 2
    return figures.get("tokens today of acme", 0.0), figures.get("sequences of acme", -1.0)


async def drill(server: RealServer, key: str) -> None:
    got = 0
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S) as http, asyncio.timeout(4 * DEADLINE_S):
        for turn in range(3):
            has_begun = asyncio.Semaphore(0)
            names = [f"turn-{turn}-{number}" for number in range(N_STREAMS)]
            work = [asyncio.ensure_future(stream(http, key, name, has_begun)) for name in names]
            for _ in work:
                await has_begun.acquire()
            for victim in VICTIMS[2 * turn : 2 * turn + 2]:
                await asyncio.to_thread(server.kill, victim)
            got += sum(await asyncio.gather(*work))
        while (found := await asyncio.to_thread(counted, server))[1] != 0.0 or abs(found[0] - got) > got / 100:
            await asyncio.sleep(0.05)
    print(f"clients have got {got} tokens, the accounts have counted {found[0]:.0f}")


@pytest.mark.slow
def test_the_accounts_are_right_although_gateways_and_accounts_are_killed(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(POLICY)
    with real_server(*FLAGS, "--gateways", "4", "--config", str(config)) as server:
        key = keys(server.run_dir, "add", "--tenant", "acme")
        asyncio.run(drill(server, key))


async def statuses(server: RealServer, key: str) -> list[int]:
    """The statuses of sixty requests at once, over connections of their own."""

    async def one() -> int:
        body = {"prompt": [5, 6, 7], "max_tokens": 4}
        answer = await http.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
        return answer.status_code

    none_twice = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, limits=none_twice) as http:
        return await asyncio.gather(*(one() for _ in range(60)))


@pytest.mark.slow
def test_a_limit_holds_for_all_gateways_together_and_after_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text("api_keys = true\n[tenants.default]\ntokens_per_day = 140\n")
    with real_server(*FLAGS, "--gateways", "2", "--config", str(config)) as server:
        key = keys(server.run_dir, "add", "--tenant", "acme")
        assert asyncio.run(statuses(server, key)).count(200) == 20, "a request needs 7 tokens"
        server.wait_for(lambda report: counted(server) == (140.0, 0.0))
        assert "accounts" in check_inventory(server)
        server.stop()
        server.start_again()
        assert asyncio.run(statuses(server, key)) == [429] * 60
        server.kill("accounts/0")
        assert asyncio.run(statuses(server, key)) == [429] * 60
