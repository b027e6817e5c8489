"""kill -9 of a rank again and again, each time before its steps have given anything: but for the cause of death, this looks to
the scheduler like a poison. No request may pay for it, and a spent restart budget must not lose one either.

A file on the children's path is the test's hold over the device: while it is there, no step ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.client import AsyncClient
from messages.outcomes import ExitCode
from supervisor.directories.run_dir_files import read_end
from tests.support.real_server import RealServer
from tests.support.streams import DEADLINE_S, N_STREAMS, Streams

pytestmark = pytest.mark.timeout(600)
N_KILLS = 4
SLOW_STEP = """
import os, time
from pathlib import Path
from gpu_workers.hash_chain_engine import HashChainEngine

_here = Path(__file__).parent
_launch = HashChainEngine.launch

def launch(self, plan):
    (_here / f"step-{os.getpid()}").touch()
    while (_here / "hold").exists():
        time.sleep(0.005)
    return _launch(self, plan)

HashChainEngine.launch = launch
"""


class HeldServer:
    """A real server whose steps do not end while it is held."""

    def __init__(self, path: Path, *settings: str) -> None:
        self._path = path
        (path / "sitecustomize.py").write_text(SLOW_STEP)
        self.hold()
        flags = ("--model", "hash-chain", *(part for setting in settings for part in ("--set", setting)))
        self.server = RealServer("--tp", "2", *flags)

    def hold(self) -> None:
        (self._path / "hold").touch()

    def let_go(self) -> None:
        (self._path / "hold").unlink()

    async def kill_in_its_step(self, rank: int, after: int) -> int:
        """Kill a rank of a later incarnation than this one, once both ranks are in a step; returns the incarnation."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                ranks = [c for c in (await asyncio.to_thread(self.server.status)).children if c.name.startswith("worker/")]
                if all(c.pid and c.incarnation > after and (self._path / f"step-{c.pid}").exists() for c in ranks):
                    os.kill(int(ranks[rank].pid), signal.SIGKILL)
                    return int(ranks[rank].incarnation)
                await asyncio.sleep(0.1)


@pytest.fixture
def held(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldServer]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    held = HeldServer(tmp_path, f"supervisor.gang_restarts={request.param}")
    try:
        yield held
    finally:
        held.server.clean()


@pytest.mark.parametrize("held", [100], indirect=True)
async def test_ranks_that_are_killed_before_every_token_cost_no_stream(held: HeldServer) -> None:
    async with AsyncClient(held.server.zeromq) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        incarnation = 0
        for number in range(N_KILLS):
            incarnation = await held.kill_in_its_step(rank=number % 2, after=incarnation)
        assert not any(streams.tokens), "a step has ended: this would be no test of what looks like a poison"
        await asyncio.to_thread(held.server.wait_new_incarnation, "worker/0.0", incarnation)
        assert (await asyncio.to_thread(held.server.child, "scheduler/0")).statistics["on_probation"] == 0
        held.let_go()
        await work
        streams.check()
    assert "killed by SIGKILL" in (await asyncio.to_thread(held.server.child, "worker/0.1")).last_exit
    assert await asyncio.to_thread(held.server.stop) == 0


@pytest.mark.long  # `make test` spends budgets in tests/supervisor/test_supervisor.py
@pytest.mark.parametrize("held", [2], indirect=True)
async def test_kills_that_spend_the_budget_end_the_server_and_the_next_start_goes_on(held: HeldServer) -> None:
    server = held.server
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client)
        work = asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        incarnation = 0
        for _ in range(3):
            incarnation = await held.kill_in_its_step(rank=0, after=incarnation)
        assert await asyncio.to_thread(server.process.wait, DEADLINE_S) == ExitCode.BUDGET_SPENT
        status, words = read_end(server.run_dir)
        said = "the server gave up: worker/0.0: expected at most 2 restarts of gang 0 in 300 s, this would be one more"
        assert (status, words) == (ExitCode.BUDGET_SPENT, said)
        assert said.removeprefix("the server gave up: ") in server.log()
        assert not any(streams.tokens)
        held.let_go()
        await asyncio.to_thread(server.start_again)
        await work
        streams.check()
    assert await asyncio.to_thread(server.stop) == 0
