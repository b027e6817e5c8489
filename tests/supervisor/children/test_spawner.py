"""The spawner of local processes: what a child inherits, and that each is registered."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec

from messages.outcomes import ExitCode
from supervisor.children.process import ExitStatus
from supervisor.children.spawner import LocalSpawner
from tests.support.supervisor.trees import group

DEADLINE_S = 60.0
[SPEC] = group("gateway/0").children


async def test_a_child_inherits_its_descriptors_and_no_others(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    spec = replace(SPEC, descriptors={"pipe": read_end})
    spawner = LocalSpawner(tmp_path / "children.json", "tests.support.supervisor.descriptor_lister")
    try:
        ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        process = spawner.spawn(spec, ended.set_result, (str(tmp_path / "seen"),))
        process.send_spawn_spec(b"")
        assert await asyncio.wait_for(ended, DEADLINE_S) == ExitStatus(0, "")
    finally:
        os.close(read_end)
        os.close(write_end)
    seen = {int(number) for number in (tmp_path / "seen").read_text().split()}
    assert read_end in seen
    assert write_end not in seen


async def test_a_child_is_registered_before_it_gets_its_spawn_spec(tmp_path: Path) -> None:
    spawner = LocalSpawner(tmp_path / "children.json", "tests.support.supervisor.stub_entrypoint")
    ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
    process = spawner.spawn(SPEC, ended.set_result)
    [registered] = msgspec.json.decode((tmp_path / "children.json").read_bytes())["children"]
    assert (registered["facts"]["name"], registered["pid"]) == ("gateway/0", process.pid)
    process.kill()
    assert (await asyncio.wait_for(ended, DEADLINE_S)).signal_name == "SIGKILL"


def test_a_spare_whose_supervisor_ends_exits_without_a_word() -> None:
    command = [sys.executable, "-m", "supervisor.children.entrypoint", "gateway/0"]
    ended = subprocess.run(command, input=b"", capture_output=True, timeout=DEADLINE_S, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (ExitCode.FAULT, b"", b"")
