"""A process that runs, but whose event loop does not, is noticed by its silence: its streams go on as after a death."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from tests.support.planted_freeze import FOLDER, SITE, freeze
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.streams import DEADLINE_S, VOCABULARY

pytestmark = pytest.mark.timeout(600)
N_TOKENS, N_BEFORE = 300, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frozen")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RealServer]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(FOLDER, str(folder))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SITE), os.environ.get("PYTHONPATH", ""))))
        with real_server(*WITH_SPARES, "--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01") as server:
            yield server


@pytest.mark.parametrize("name", ["gateway/0", "scheduler/0", "worker/0.0", "custodian/0"])
async def test_a_frozen_process_is_replaced_and_streams_go_on(server: RealServer, folder: Path, name: str) -> None:
    before = await asyncio.to_thread(server.wait_for, lambda report: all(child.has_spare for child in report.children))
    (victim,) = [child for child in before.children if child.name == name]
    prompt, tokens, times_s = [1, 2, 3], list[int](), list[float]()
    async with AsyncClient(server.zeromq) as client:
        async for piece in client.stream(tokens=prompt, max_tokens=N_TOKENS, temperature=0.0, deadline_s=DEADLINE_S):
            tokens += piece.ids
            times_s.append(time.monotonic())
            if len(tokens) - len(piece.ids) < N_BEFORE <= len(tokens):
                freeze(folder, victim.pid)
    assert tokens == hash_chain_tokens(prompt, N_TOKENS, 0, VOCABULARY)
    gap_s = max(after - one for one, after in itertools.pairwise(times_s))
    print(f"{name} held its interpreter: the longest gap was {gap_s:.2f} s")
    new = await asyncio.to_thread(server.wait_new_incarnation, name, victim.incarnation)
    assert "no Progress" in new.last_exit
