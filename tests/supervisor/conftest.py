"""Fixtures: `open_rig`, a real supervisor over stub processes; `sleeper`, a process that tests may end; `restored_logging`."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog

from supervisor.children.spawner import LocalSpawner
from supervisor.config.server_config import SupervisorSettings
from supervisor.directories.run_dir import RunDir
from supervisor.directories.server import Server
from supervisor.operator.display import Display
from supervisor.policy.child_spec import Group
from supervisor.supervisor import Supervisor
from tests.support.supervisor.supervisor_rig import DEADLINE_S, SupervisorRig


@pytest.fixture
def open_rig(tmp_path_factory: pytest.TempPathFactory):
    """`async with open_rig(groups...) as rig`; fails if a process is alive at the end."""
    path = tmp_path_factory.mktemp("run") / "d"

    @asynccontextmanager
    async def opened(*groups: Group, drain_s: float = 5.0, spares: bool = False) -> AsyncIterator[SupervisorRig]:
        run_dir = RunDir.acquire(path)
        settings = SupervisorSettings(drain_s=drain_s, beat_s=0.1, spares=spares)
        server = Server(groups, run_dir, settings, "stub", "http://nowhere", "console", "error")
        spawner = LocalSpawner(run_dir.register_path, "tests.support.supervisor.stub_entrypoint")
        rig = SupervisorRig(Supervisor(server, Display("stub", "", "", is_live=False), spawner), path)
        try:
            yield rig
        finally:
            rig.supervisor.commands.force()
            await asyncio.wait_for(asyncio.gather(rig.task, return_exceptions=True), DEADLINE_S)
            pids = [r.process.pid for r in rig.supervisor.children.records if r.process and not r.process.exit]
            run_dir.release()
            assert pids == []

    return opened


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Logging as it was before."""
    before = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    structlog.reset_defaults()
    logging.captureWarnings(False)
    logging.getLogger().handlers[:], level = before
    logging.getLogger().setLevel(level)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps for ten minutes. It is killed after the test."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
