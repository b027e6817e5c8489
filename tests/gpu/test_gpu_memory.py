"""The memory of GPUs over many deaths: whatever a killed rank held is free again, and nothing is left in shared memory."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from ops.bench.leaks.held_resources import descendants_of
from tests.support.fuzz.listeners import listeners
from tests.support.real_server import RealServer, real_server
from tests.support.workers.tiny_model import EIGHT_HEADS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
N_KILLS = 8
SPARE_BYTES = 64 << 20
SETTLE_S = 60.0
LAYOUTS = {"1": ("--gpus", "1", "--no-standby"), "2 as tp 2": ("--gpus", "2", "--tp", "2", "--no-standby")}
FIXED = ("--set", f"worker.kv_memory_bytes={1 << 28}")  # otherwise it is a share of what is free


def used_bytes() -> int:
    """Memory that is in use on all GPUs, by whomever."""
    return sum(total - free for free, total in map(torch.cuda.mem_get_info, range(torch.cuda.device_count())))


def settled_bytes(most: int) -> int:
    """What is in use once it is at most this, or after a minute: the driver frees a dead process's memory some time later."""
    end_s = time.monotonic() + SETTLE_S
    while (now := used_bytes()) > most and time.monotonic() < end_s:
        time.sleep(0.1)
    return now


def shared_names() -> set[str]:
    """What communication libraries keep in shared memory, by name."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("nccl", "torch", "nvshmem"))}


def wait_spares(server: RealServer) -> None:
    """Until every child has its spare: a spare may have a CUDA context."""
    server.wait_for(lambda report: report.state == "serving" and all(child.has_spare for child in report.children))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_deaths_of_ranks_leave_no_memory_behind(layout: str, tmp_path: Path) -> None:
    if torch.cuda.device_count() < int(LAYOUTS[layout][1]):
        pytest.skip(f"needs {LAYOUTS[layout][1]} devices")
    torch.cuda.init()
    without = used_bytes()
    (tmp_path / "config.json").write_text(json.dumps(EIGHT_HEADS))
    model = ("--model", str(tmp_path), "--load-format", "random")
    with real_server(*model, *LAYOUTS[layout], *FIXED, "--set", "supervisor.gang_restarts=1000") as server:
        hit = server.kill("worker/0.0")  # what a first death makes once is made now
        server.wait_new_incarnation("worker/0.0", hit)
        wait_spares(server)
        before, names = used_bytes(), shared_names()
        for _ in range(N_KILLS):
            hit = server.kill("worker/0.0", signal.SIGKILL, hit)
            server.wait_new_incarnation("worker/0.0", hit)
        wait_spares(server)
        after = settled_bytes(before + SPARE_BYTES)
        print(f"{layout}: {before >> 20} MiB in use after one death, {after >> 20} MiB after {N_KILLS} more")
        assert after <= before + SPARE_BYTES
        assert len(shared_names()) <= len(names), shared_names() - names
        pids = [server.process.pid, *descendants_of(server.process.pid)]
        tcp = {one for pid in pids if Path(f"/proc/{pid}").exists() for one in listeners(pid) if not one.startswith("unix")}
        assert all(one.startswith("tcp 127.0.0.1:") for one in tcp), "ranks meet on the loopback interface"
    assert settled_bytes(without + SPARE_BYTES) <= without + SPARE_BYTES
