"""Processes of a server with shared weights die while they load, map and use them; the weights are loaded once."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from messages.client import Client
from messages.lifecycle.tree import ChildState, StatusReport
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.supervisor.standby_server import SEATS, hit, wait_standby, wait_statistic
from tests.support.workers.tiny_model import EIGHT_HEADS

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
BUDGETS = ("supervisor.gang_restarts=100000", "supervisor.actor_restarts=100000", "supervisor.restart_attempts=1000")
PROMPT = list(range(100, 180))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    (tmp_path / "config.json").write_text(json.dumps(EIGHT_HEADS | {"num_hidden_layers": 2}))
    sets = [part for flag in BUDGETS for part in ("--set", flag)]
    model = ("--model", str(tmp_path), "--load-format", "random", "--dtype", "float32", "--log-level", "info")
    with real_server(*WITH_SPARES, *model, "--standby", *sets) as server:
        yield server


def n_weights(server: RealServer, reused: bool) -> int:
    """How many processes have loaded their weights, or mapped those of another one."""
    return len(re.findall(rf"\bweights\b.*reused=.*{reused}", server.log()))


def private_bytes(server: RealServer, name: str) -> int:
    """Memory of a process that no other process can use."""
    status = Path(f"/proc/{server.child(name).pid}/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) << 10


def is_loading(report: StatusReport, name: str, after: int) -> bool:
    """True if a later incarnation than this one loads, or has loaded already because this test was kept from looking."""
    begun = (ChildState.WELCOMED, ChildState.READY)
    return any(c.name == name and c.incarnation > after and c.state in begun for c in report.children)


def answer(server: RealServer) -> list[int]:
    with Client(server.zeromq) as client:
        return list(client.generate(PROMPT, max_tokens=24, temperature=0.0, ignore_eos=True).tokens)


def test_weights_are_loaded_once_whoever_dies(server: RealServer) -> None:
    wait_standby(server)
    right = answer(server)
    assert (n_weights(server, reused=False), n_weights(server, reused=True)) == (1, 1)
    print("private memory:", {name: private_bytes(server, name) >> 20 for name in SEATS}, "MiB")
    for victim in ("active", "vault/0", "standby", "active"):
        hit(server, victim, signal.SIGKILL)
        wait_standby(server)
        wait_statistic(server, "vault/0", "entries", 3.0)  # weights, keys and values, seal table
        assert answer(server) == right, victim
    for _ in range(4):  # in the middle of its start
        name, life = hit(server, "standby", signal.SIGKILL)
        server.wait_for(lambda r, name=name, life=life: is_loading(r, name, life))
    wait_standby(server)
    for name in SEATS:
        server.kill(name)
    wait_standby(server)
    assert answer(server) == right
    assert n_weights(server, reused=False) == 1
    assert n_weights(server, reused=True) >= 6
