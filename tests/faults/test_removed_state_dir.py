"""Somebody removes the state directory of a server that runs: the next start finds everything that the last one knew."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from messages.outcomes import ExitCode
from tests.support.real_server import RealServer
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)
FLAGS = ("--model", "hash-chain")
FILES = {"gateways.json", "journals.lock", "journal-0", "journal-1"}
BODY = {"prompt": [5, 6], "max_tokens": 3, "temperature": 0}
DEADLINE_S = 60.0


def ask(server: RealServer, key: str) -> dict:
    """The answer to the request with this key; the same for as long as it is remembered."""
    reply = httpx.post(f"{server.url}/v1/completions", json=BODY, headers={"Idempotency-Key": key}, timeout=DEADLINE_S)
    assert reply.status_code == 200, reply.text
    return reply.json()


def _wait(condition: Callable[[], object]) -> None:
    asyncio.run(until(condition))


def remove(state: Path) -> None:
    """Remove the directory, and wait until all of it is there again. The server writes to it meanwhile, so it goes at once."""
    removed = state.with_name("removed")
    state.rename(removed)
    shutil.rmtree(removed)
    _wait(lambda: state.exists() and {file.name for file in state.iterdir()} >= FILES)
    _wait(lambda: all(list(state.glob(f"journal-{nth}/*.log")) for nth in range(2)))


def test_a_state_directory_that_was_removed_comes_back_whole(tmp_path: Path) -> None:
    state = tmp_path / "state"
    server = RealServer(*FLAGS, "--gateways", "2", "--state-dir", str(state))
    try:
        keys = [f"key {nth}" for nth in range(8)]  # each gateway owns some of them
        before = {key: ask(server, key) for key in keys}
        remove(state)
        server.wait_supervisor(server.kill_supervisor())
        remove(state)
        again = [sys.executable, "-m", "supervisor", "start", "--gpus", "0", *FLAGS, "--port", "0", "--state-dir", str(state)]
        other = subprocess.run(again, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert other.returncode == ExitCode.UNUSABLE, other.stderr
        assert "state_dir: expected no other server on the journals" in other.stderr
        assert server.stop() == 0, server.log()
        server._flags = ("--gpus", "0", *FLAGS, "--state-dir", str(state))  # with one gateway
        server.start_again()
        assert {key: ask(server, key)["id"] for key in keys} == {key: answer["id"] for key, answer in before.items()}
        found = json.loads((state / "gateways.json").read_bytes())
        assert found["number"] == 1
        assert found["changed_s"] > 0.0, "it knows that there were two"
        assert server.stop() == 0, server.log()
    finally:
        server.clean()
