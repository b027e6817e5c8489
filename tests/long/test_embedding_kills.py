"""Calls for embeddings while the embedder is killed again and again, stopped for seconds, killed in an emptied run directory
and on a full disk, and while their gateway is killed or replaced: each call gets its vectors, and they are right."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from messages.lifecycle.tree import StatusReport
from tests.support.embedding.embedders import packaged_folder
from tests.support.load_tools import run_load_tool
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.supervisor.emptied_run_dir import empty
from tests.support.supervisor.small_disk import full, small_disk

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

AT_A_TIME, STOPPED_S = 16, 5.0
EMBEDDER = "embedder/0"
Harm = Callable[[RealServer, int], Awaitable[int]]  # done to a later incarnation than this one; returns which


def texts_of(number: int) -> list[str]:
    """The texts of one call: a short and a long one."""
    return [f"text number {number}", f"water bear {number} " * (1 + number % 40)]


async def ask(http: httpx.AsyncClient, texts: list[str]) -> np.ndarray:
    answer = await http.post("/v1/embeddings", json={"input": texts})
    assert answer.status_code == 200, answer.text
    return np.asarray([one["embedding"] for one in answer.json()["data"]], np.float32)


async def kill(server: RealServer, incarnation: int) -> int:
    return await asyncio.to_thread(server.kill, EMBEDDER, after=incarnation)


async def stop_for_seconds(server: RealServer, incarnation: int) -> int:
    """Stop the embedder, which is replaced meanwhile."""
    child = await asyncio.to_thread(server.wait_new_incarnation, EMBEDDER, incarnation)
    os.kill(int(child.pid), signal.SIGSTOP)
    await asyncio.sleep(STOPPED_S)
    with suppress(ProcessLookupError):
        os.kill(int(child.pid), signal.SIGCONT)
    return int(child.incarnation)


async def kill_in_an_emptied_directory(server: RealServer, incarnation: int) -> int:
    await asyncio.to_thread(server.wait_new_incarnation, EMBEDDER, incarnation)
    await empty(server.run_dir)
    return await kill(server, incarnation)


async def kill_on_a_full_disk(server: RealServer, incarnation: int) -> int:
    """There is room again when the death has been noticed."""
    await asyncio.to_thread(server.wait_new_incarnation, EMBEDDER, incarnation)
    with full(server.run_dir.parent.parent, server.supervisor_pid):
        killed = await kill(server, incarnation)
        await asyncio.to_thread(server.wait_for, lambda report: (EMBEDDER, killed, "ready") not in lives(report))
    return killed


def lives(report: StatusReport) -> list[tuple[str, int, str]]:
    return [(child.name, int(child.incarnation), child.state) for child in report.children]


N_CALLS = 200
HARMS: tuple[Harm, ...] = (kill, kill, stop_for_seconds, kill_in_an_emptied_directory, kill_on_a_full_disk, kill)


async def all_calls(http: httpx.AsyncClient, server: RealServer, n_calls: int) -> list[np.ndarray]:
    """The vectors of all calls. A harm falls between two equal shares of the answers, after the next incarnation is up."""
    found: dict[int, np.ndarray] = {}
    numbers = iter(range(n_calls))
    progress = asyncio.Condition()

    async def work() -> None:
        for number in numbers:
            found[number] = await ask(http, texts_of(number))
            async with progress:
                progress.notify_all()

    async def harm() -> None:
        incarnation = 0
        for share, one in enumerate(HARMS, start=1):
            async with progress:
                await progress.wait_for(lambda share=share: len(found) >= share * n_calls // (len(HARMS) + 2))
            incarnation = await one(server, incarnation)

    await asyncio.gather(harm(), *(work() for _ in range(AT_A_TIME)))
    return [found[number] for number in range(n_calls)]


async def run_calls(server: RealServer, n_calls: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The vectors of every tenth call without harm, and of all calls with harm."""
    async with httpx.AsyncClient(base_url=server.url, timeout=120.0) as http:
        expected = [await ask(http, texts_of(number)) for number in range(0, n_calls, 10)]
        return expected, await all_calls(http, server, n_calls)


def test_no_call_is_lost(tmp_path: Path) -> None:
    packaged_folder()
    flags = ("--model", "hash-chain", "--embedding-model", "minilm", "--state-dir", str(tmp_path / "state"))
    with (
        tempfile.TemporaryDirectory() as folder,  # sockets want short paths
        small_disk(Path(folder)) as disk,
        real_server(*WITH_SPARES, *flags, folder=disk) as server,
    ):
        expected, found = asyncio.run(run_calls(server, N_CALLS))
        assert server.child(EMBEDDER).incarnation >= len(HARMS)
        assert server.child("gateway/0").incarnation == 1
    assert np.abs(np.stack(found[::10]) - np.stack(expected)).max() < 1e-5
    assert all(np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5 for vectors in found)


async def answered_although(
    server: RealServer, texts: list[str], http: httpx.AsyncClient, harm: Callable[[], object]
) -> np.ndarray:
    """The vectors of a call that the embedder cannot answer before `harm` was done."""
    embedder = await asyncio.to_thread(server.child, EMBEDDER)
    os.kill(int(embedder.pid), signal.SIGSTOP)
    call = asyncio.create_task(ask(http, texts))

    def is_held(report: StatusReport) -> bool:
        return next(child for child in report.children if child.name == "custodian/0").statistics.get("sockets", 0) >= 2

    await asyncio.to_thread(server.wait_for, is_held)
    await asyncio.to_thread(harm)
    with suppress(ProcessLookupError):
        os.kill(int(embedder.pid), signal.SIGCONT)
    return await call


async def calls_beside_harm(server: RealServer) -> tuple[np.ndarray, list[np.ndarray]]:
    """The vectors of a large call without harm, and with each: its gateway killed, killed twice, and a rolling restart."""
    texts = [f"text {number} of a large call, with some water bears in it" for number in range(64)]

    def kill_twice() -> None:
        server.kill("gateway/0", after=server.kill("gateway/0"))

    def restart() -> None:
        command = [sys.executable, "-m", "supervisor", "restart", "--rolling", "--run-dir", str(server.run_dir)]
        subprocess.run(command, check=True, timeout=300.0)

    async with httpx.AsyncClient(base_url=server.url, timeout=120.0) as http:
        expected = await ask(http, texts)
        return expected, [
            await answered_although(server, texts, http, harm)
            for harm in (lambda: server.kill("gateway/0"), kill_twice, restart)
        ]


def test_a_call_goes_on_at_the_next_incarnation_of_its_gateway() -> None:
    """On the same connection, although no journal has it."""
    packaged_folder()
    with real_server(*WITH_SPARES, "--model", "hash-chain", "--embedding-model", "minilm") as server:
        expected, found = asyncio.run(calls_beside_harm(server))
        assert server.child("gateway/0").incarnation >= 5, server.log()
    for vectors in found:
        assert np.abs(vectors - expected).max() < 1e-5


def test_the_kill_drill_harms_the_embedder_and_its_gateway() -> None:
    """Clients of embeddings beside streams: no stream is lost, every vector is right."""
    packaged_folder()
    targets = ("--target", "embedder", "--target", "gateway", "--target", "supervisor")
    sizes = ("--faults", "16", "--streams", "6", "--server-arg=--embedding-model", "--server-arg=minilm")
    result = run_load_tool("kill-drill", *targets, *sizes)
    assert (result["wrong"], result["lost"]) == (0, 0), result["errors"]
    assert sum(sum(phase.values()) for phase in result["covered"]["embedder"].values()) >= 4, result["covered"]
