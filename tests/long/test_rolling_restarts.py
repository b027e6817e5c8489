"""Rolling restarts under load, from one release to the next: no request is lost, no byte is wrong, no connection breaks."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from messages.client import AsyncClient
from tests.support import next_release as next_release_of
from tests.support.http_answers import PAGE_FLAGS, answers
from tests.support.real_server import WITH_SPARES, RealServer
from tests.support.streams import N_STREAMS, Streams

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
N_TOKENS = 200
DEADLINE_S = 300.0
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01", *PAGE_FLAGS)


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes of servers that start once this file exists are of the next release."""
    flag = tmp_path / "next"
    paths = [
        str(Path(next_release_of.__file__).parent / "site"),
        os.environ.get("PYTHONPATH", ""),
        str(Path(__file__).parent.parent.parent),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("TARDIGRADE_TEST_NEXT_RELEASE", str(flag))
    return flag


class KeptAlive(threading.Thread):
    """A client that sends one short request after the other on one connection, and does not ask again when it breaks."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self.is_over, self.n_answers = port, threading.Event(), 0
        self.texts: set[str] = set()
        self.error = ""

    def run(self) -> None:
        body = json.dumps({"model": "hash-chain", "prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        connection.connect()
        connection.auto_open = 0
        try:
            while not self.is_over.is_set():
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said = json.loads(answer.read())
                assert answer.status == 200, said
                self.texts.add(said["choices"][0]["text"])
                self.n_answers += 1
                self.is_over.wait(0.003)
        except Exception as error:
            self.error = repr(error)


async def http_round(server: RealServer, run: str) -> dict[str, bytes]:
    """What all clients of one round have read."""
    wanted = answers(run, N_TOKENS)
    await asyncio.gather(*(one.follow("127.0.0.1", server.port) for one in wanted))
    assert not [one.name for one in wanted if one.is_closed]
    return {one.name.removeprefix(run): one.plain() for one in wanted}


async def zeromq_round(server: RealServer, salt: int) -> None:
    async with AsyncClient(server.zeromq) as client:
        streams = Streams(client, salt)
        await asyncio.gather(*(streams.follow(index) for index in range(N_STREAMS)))
        streams.check()


def difference(got: bytes, expected: bytes) -> tuple[bytes, bytes]:
    """Where two answers begin to differ."""
    at = next((i for i, (one, other) in enumerate(zip(got, expected, strict=False)) if one != other), 0)
    return got[max(at - 80, 0) : at + 80], expected[max(at - 80, 0) : at + 80]


async def restart(server: RealServer, *flags: str) -> list[dict]:
    """One rolling restart; returns its lines."""
    command = [sys.executable, "-m", "supervisor", "restart", "--rolling", "--json", "--run-dir", str(server.run_dir), *flags]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, (ended.stdout, ended.stderr, server.log())
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    "flags",
    [(), ("--gateways", "2", "--replicas", "2"), ("--standby",)],
    ids=["plain", "two", "standby"],
)
async def test_nothing_is_lost_while_all_processes_are_replaced(flags: tuple[str, ...], next_release: Path) -> None:
    server = await asyncio.to_thread(lambda: RealServer(*WITH_SPARES, *FLAGS, *flags))
    try:
        undisturbed = await http_round(server, "r000")
        before = {child.name: child.incarnation for child in (await asyncio.to_thread(server.wait_serving)).children}
        pids = server.process.pid, server.supervisor_pid
        kept = KeptAlive(server.port)
        kept.start()
        await asyncio.to_thread(next_release.touch)
        work = asyncio.create_task(restart(server))
        n_rounds = 0
        while not work.done():
            n_rounds += 1
            got, _ = await asyncio.gather(http_round(server, f"r{n_rounds:03}"), zeromq_round(server, n_rounds))
            for name, said in got.items():
                assert said == undisturbed[name], (n_rounds, name, *difference(said, undisturbed[name]))
        lines = await work
        kept.is_over.set()
        kept.join(DEADLINE_S)
        print(flags, n_rounds, "rounds", kept.n_answers, "answers on one connection", lines[-1])
        assert kept.error == "", server.log()
        assert len(kept.texts) == 1
        children = (await asyncio.to_thread(server.wait_serving)).children
        after = {child.name: child.incarnation for child in children}
        of_next = {int(path.suffix[1:]) for path in next_release.parent.glob("next.*")}
        assert of_next >= {server.process.pid, *(child.pid for child in children)}
        assert all(after[name] > incarnation for name, incarnation in before.items()), (before, after)
        assert server.process.pid == pids[0]
        assert server.supervisor_pid != pids[1]
        assert await asyncio.to_thread(server.stop) == 0, server.log()
    finally:
        server.clean()
