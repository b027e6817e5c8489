"""A real server with several gateways and a tenant with limits: what its accounts count is what clients have got, although
every gateway and the accounts are killed, and its limits hold for all gateways together, under kills and over a restart."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from supervisor.usage.tenant_lines import tenant_lines
from tests.support.embedding.embedders import packaged_folder
from tests.support.fuzz.fuzz_case import check_inventory
from tests.support.key_commands import keys
from tests.support.real_server import RealServer, real_server
from tests.support.tenants.mixed_work import MixedWork
from tests.support.waiting import DEADLINE_S

FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.005")
VICTIMS = ("gateway/1", "accounts/0", "gateway/2", "accounts/0", "accounts/0", "gateway/3", "gateway/0", "accounts/0")
N_STREAMS = 12
POLICY = "api_keys = true\n[tenants.acme]\ntokens_per_day = 100000\nmax_sequences = 40\ntokens_per_min = 1000000\n"


def counted(server: RealServer) -> tuple[float, float]:
    """Tokens that the accounts have counted today, and open sequences."""
    report = server.status()
    figures = next(child.statistics for child in report.children if child.name == "accounts/0")
    assert not figures or len(tenant_lines(report)) <= 2
    return figures.get("tokens today of acme", 0.0), figures.get("sequences of acme", -1.0)


async def turn(server: RealServer, work: MixedWork, number: int) -> None:
    """Requests of all kinds at once, while two processes are killed."""
    streams = [f"turn-{number}-{index}" for index in range(N_STREAMS // 2)] + [""] * (N_STREAMS // 2)
    asked = [asyncio.ensure_future(work.stream(name)) for name in streams]
    asked += [asyncio.ensure_future(one) for one in (*(work.whole() for _ in range(4)), work.batch(), work.batch())]
    for _ in streams:
        await work.has_begun.acquire()
    embedding = asyncio.ensure_future(embed_until(work, asyncio.gather(*asked[: len(streams)])))
    for victim in VICTIMS[2 * number : 2 * number + 2]:
        await asyncio.to_thread(server.kill, victim)
    await asyncio.gather(embedding, *asked)
    for _ in streams:  # each has told of its end, too
        await work.has_begun.acquire()


async def embed_until(work: MixedWork, ended: asyncio.Future[list[None]]) -> None:
    while not ended.done():
        await work.embed("a text about water bears")


async def drill(server: RealServer, key: str) -> None:
    none_twice = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, limits=none_twice) as http,
        asyncio.timeout(4 * DEADLINE_S),
    ):
        work = MixedWork(http, key)
        for number in range(len(VICTIMS) // 2):
            await turn(server, work, number)
            least, most = work.n_got * 0.99, (work.n_got + work.n_unsure) * 1.01
            while (found := await asyncio.to_thread(counted, server))[1] != 0.0 or not least <= found[0] <= most:
                await asyncio.sleep(0.05)
            print(f"clients have {work.n_got} tokens, lost {dict(work.lost)} ({work.n_unsure} at most), counted {found[0]:.0f}")


@pytest.mark.slow
def test_the_accounts_are_right_although_gateways_and_accounts_are_killed(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(POLICY)
    packaged_folder()
    flags = (*FLAGS, "--gateways", "4", "--embedding-model", "minilm")
    with real_server(*flags, "--config", str(config)) as server:
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


async def refill_under_kills(server: RealServer, key: str, per_min: int) -> None:
    """More requests than the limit allows, in rounds; in each one a gateway dies, and now and then the accounts."""

    async def one() -> str:
        body = {"prompt": [5, 6, 7], "max_tokens": 4}
        try:
            answer = await http.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})
        except httpx.TransportError:
            return "lost"
        if answer.status_code == 429:
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert "requests_per_min" in answer.text
        return str(answer.status_code)

    none_twice, found = httpx.Limits(max_connections=None, max_keepalive_connections=0), Counter[str]()
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE_S, limits=none_twice) as http:
        began_s = time.monotonic()
        for victims in (("gateway/0",), ("gateway/1", "accounts/0"), ("accounts/0",), ("gateway/0", "gateway/1"), ()):
            asked = [asyncio.ensure_future(one()) for _ in range(per_min // 2)]
            for victim in victims:
                await asyncio.to_thread(server.kill, victim)
            found.update(await asyncio.gather(*asked))
        passed_s = time.monotonic() - began_s
    print(f"{found} in {passed_s:.1f} s")
    assert found.keys() <= {"200", "429", "lost"}, found
    assert found["200"] <= per_min + passed_s * per_min / 60 + 1, "no more than the limit and what has come since"
    assert found["200"] + found["lost"] >= per_min, "and no less: nothing is lost with a process"


@pytest.mark.long  # `make test` does it with the tokens of a day, above
def test_requests_of_a_minute_are_no_more_and_no_fewer_under_kills(tmp_path: Path) -> None:
    config, per_min = tmp_path / "server.toml", 120
    config.write_text(f"api_keys = true\n[tenants.acme]\nrequests_per_min = {per_min}\n")
    with real_server(*FLAGS, "--gateways", "2", "--config", str(config)) as server:
        asyncio.run(refill_under_kills(server, keys(server.run_dir, "add", "--tenant", "acme"), per_min))
