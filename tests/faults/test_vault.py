"""Kills around the vault while 32 streams run: active gang, standby, scheduler and vault in series. Each stream ends with
exactly the oracle's tokens; pages are adopted after kills, and none after a planted device fault."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from messages.client import AsyncClient, Client
from messages.lifecycle import StatusReport
from tests.support.real_server import RealServer, real_server
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.timeout(240)]
SEATS = ("worker/0.0", "worker/0.0b")
KILL, CRASH = signal.SIGKILL, signal.SIGSEGV
PROMPT = list(range(1, 200))


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    flags = ("worker.hash_chain_step_s=0.01", "supervisor.gang_restarts=100", "supervisor.actor_restarts=100")
    sets = (part for flag in flags for part in ("--set", flag))
    with real_server("--model", "hash-chain", "--standby", "--log-level", "info", *sets) as server:
        yield server


def gang_in_charge(server: RealServer) -> str:
    """The name of the rank that is active; the other one is the standby, or starts."""
    report = server._wait(lambda r: any(is_active(r, name) for name in SEATS), 60.0)
    return next(name for name in SEATS if is_active(report, name))


def is_active(report: StatusReport, name: str) -> bool:
    return any(child.name == name and child.state == "ready" and child.phase != "standby" for child in report.children)


def wait_standby(server: RealServer) -> None:
    """Until a standby gang is ready."""
    server._wait(lambda r: any(child.phase == "standby" and child.state == "ready" for child in r.children), 60.0)


def has_adopted(report: StatusReport) -> bool:
    """True if the scheduler has begun an epoch with pages of known content."""
    return any(child.statistics.get("pages_adopted", 0.0) > 0 for child in report.children if child.name == "scheduler/0")


def hit(server: RealServer, victim: str, how: signal.Signals) -> None:
    """Kill "active", "standby" or an actor by its name."""
    name = victim
    if victim in ("active", "standby"):
        active = gang_in_charge(server)
        name = active if victim == "active" else next(seat for seat in SEATS if seat != active)
    server.kill(name, how)


ORDERS = (("vault/0", "active", "scheduler/0"), ("standby", "active", "active"))


@pytest.mark.parametrize("victims", ORDERS, ids="-".join)
async def test_kills_in_series_lose_and_change_nothing(server: RealServer, victims: tuple[str, ...]) -> None:
    await asyncio.to_thread(server.wait_serving)
    async with AsyncClient(server.front) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        for n_tokens, victim in zip((10, 30, 50), victims, strict=True):
            await streams.wait_running(n_tokens)
            await asyncio.to_thread(hit, server, victim, KILL)
            streams.assert_cut()
        await work
        streams.check()
    await asyncio.to_thread(server.wait_serving)
    await asyncio.to_thread(server._wait, has_adopted, 60.0)


def n_cached(server: RealServer) -> int:
    """Tokens of the prompt that were found in pages."""
    with Client(server.front) as client:
        return client.generate(PROMPT, max_tokens=4, temperature=0.0).n_cached


def wait_statistic(server: RealServer, child: str, name: str, value: float) -> None:
    """Until a child's number is at least this."""
    server._wait(lambda r: any(c.name == child and c.statistics.get(name, 0.0) >= value for c in r.children), 60.0)


def test_pages_outlive_gangs_schedulers_and_vaults(server: RealServer) -> None:
    server.wait_serving()
    n_cached(server)
    for victims in (("active",), ("scheduler/0",), ("active", "scheduler/0"), ("vault/0",), ("active",)):
        wait_standby(server)
        wait_statistic(server, "vault/0", "entries", 2.0)  # KV memory and seal table, also in a new vault
        for victim in victims:
            hit(server, victim, KILL)
        server.wait_serving()
        assert n_cached(server) == 192, victims


def test_nothing_is_adopted_after_a_planted_device_fault(server: RealServer) -> None:
    server.wait_serving()
    wait_standby(server)
    n_cached(server)
    assert n_cached(server) == 192
    n_ready = server.log().count("gang ready")
    hit(server, "active", CRASH)
    server._wait(lambda report: server.log().count("gang ready") > n_ready, 60.0)
    assert n_cached(server) == 0
    assert n_cached(server) == 192  # the new memory works as before
