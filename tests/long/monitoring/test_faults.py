"""Ten of eleven faults are made on real servers: the metric, the alert and the log line of docs/troubleshooting.md tell each,
and their times together are within two minutes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from messages.access.api_key import Role
from ops import fault_guide
from ops.bench.own_keys import add_key
from ops.bench.own_server import free_ports
from ops.fault_guide import FaultGuide
from tests.support.monitoring.programs import DEADLINE_S, Prometheus, prometheus
from tests.support.nvml.stub_library import StubNvml
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.supervisor.small_disk import full, small_disk
from tests.support.tls.certificates import Authority
from tests.support.workers.faulty_device import FaultyDevices

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

_LOG = ("--model", "hash-chain", "--log-format", "json", "--log-level", "info")
_POISON = 31_337
MOST_S = 120.0  # the times of one fault until its metric, its alert and its log line are there, together
_DEADLY = f"""
import ctypes
from gpu_workers.hash_chain_engine import HashChainEngine

_launch = HashChainEngine.launch

def launch(self, plan):
    if {_POISON} in plan.new_tokens:
        ctypes.string_at(0)
    return _launch(self, plan)

HashChainEngine.launch = launch
"""
_COUNTED = """
from pathlib import Path
import supervisor.children.exit_cause as exit_cause

exit_cause.own_counters = lambda *paths: Path({counters!r})
"""


@dataclass
class Watched:
    """A server and the Prometheus that scrapes it."""

    server: RealServer
    prometheus: Prometheus

    def tells(self, guide: FaultGuide) -> None:
        """Wait for what the guide promises, and print after which time each came. Raises: AssertionError when all of these
        times together are more than MOST_S."""
        began_s = time.time()
        metric_s, alert_s = told_by(self.prometheus, guide)
        log_s, left_s = 0.0, MOST_S - metric_s - alert_s
        if guide.log:
            self.server.wait_for(lambda _: any(is_told(guide, line) for line in self._lines(guide)), left_s)
            line = next(line for line in self._lines(guide) if is_told(guide, line))
            log_s = max(datetime.fromisoformat(line["timestamp"]).timestamp() - began_s, 0.0)
        shown = f"{log_s:.1f} s" if guide.log else "none"
        print(f"{guide.fault}: metric {metric_s:.1f} s, alert {alert_s:.1f} s, log {shown}")
        assert log_s <= left_s

    def _lines(self, guide: FaultGuide) -> list[dict[str, Any]]:
        """The lines that the command of the guide shows; those of the server's standard error where it is systemd's."""
        if not guide.command.startswith("supervisor "):
            return [read(line) for line in self.server.log().splitlines()]
        command = [sys.executable, "-m", *guide.command.split(), "--json", "--run-dir", str(self.server.run_dir)]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert shown.returncode == 0, shown.stderr
        return [read(line) for line in shown.stdout.splitlines()]

    @contextlib.contextmanager
    def asking(self, tokens: list[int], headers: dict[str, str] | None = None, max_tokens: int = 4) -> Iterator[None]:
        """Requests, one after the other, until the end of the block. What they are answered is of no concern."""
        stopped = threading.Event()

        def run() -> None:
            with httpx.Client(headers=headers, timeout=DEADLINE_S) as client:
                while not stopped.is_set():
                    with contextlib.suppress(httpx.HTTPError):
                        client.post(f"{self.server.url}/v1/generate", json={"tokens": tokens, "max_tokens": max_tokens})

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def told_by(watching: Prometheus, guide: FaultGuide) -> tuple[float, float]:
    """Seconds until the metric and until the alert of the guide. Raises: AssertionError when both together exceed MOST_S."""
    began_s = time.monotonic()
    watching.wait(guide.metric, MOST_S)
    metric_s = time.monotonic() - began_s
    # the alert's time is told from the beginning, so the metric's counts twice in the sum
    watching.wait(f'ALERTS{{alertname="{guide.alert}", alertstate="firing"}}', MOST_S - 2 * metric_s)
    alert_s = time.monotonic() - began_s
    assert metric_s + alert_s <= MOST_S
    return metric_s, alert_s


def is_told(guide: FaultGuide, line: dict[str, Any]) -> bool:
    """Is this the log line of the guide? The state of the journal is part of its event."""
    name, value = guide.field
    event = str(line.get("event", ""))
    is_event = event == guide.log or (guide.log.startswith("journal: ") and event.startswith(guide.log))
    return is_event and (not name or str(line.get(name)) == value)


def read(line: str) -> dict[str, Any]:
    """A line of the log; empty for one that is not JSON."""
    return json.loads(line) if line.startswith("{") else {}


def shown_by(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a command of the guide shows in a folder."""
    program, *rest = command.split()
    parts = [sys.executable, "-m", program, *rest] if program == "supervisor" else [program, *rest]
    found = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(parts, cwd=folder, env=found, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Starts a server with these flags, and its Prometheus."""
    with contextlib.ExitStack() as stack:

        def start(*flags: str, folder: Path | None = None, **fields: Any) -> Watched:
            server = stack.enter_context(real_server(*WITH_SPARES, *_LOG, *flags, folder=folder))
            if fields.pop("has_keys", False):
                fields["key"] = add_key(server.run_dir, "ops", Role.ADMIN)
            watching = stack.enter_context(prometheus(tmp_path / "prometheus", server.url, **fields))
            watching.wait("tardigrade_deaths_total")  # increase() compares with this
            return Watched(server, watching)

        yield start


def plant(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that start from now on run this first."""
    (folder / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(Path(__file__).parents[3])]))


def test_a_full_disk(watched: Callable[..., Watched], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with small_disk(tmp_path / "state") as disk:
        found = watched("--state-dir", str(disk))
        with full(disk, int(found.server.child("gateway/0").pid)), found.asking(list(range(1, 3000))):
            found.tells(fault_guide.FULL_DISK)
            assert httpx.get(f"{found.server.url}/health", timeout=DEADLINE_S).status_code == 503
        assert found.server.stop() == 0  # before its disk is gone


def test_a_sick_gpu(watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubNvml(tmp_path)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    stub.say(gpus=1, busy=50)
    found = watched("--set", 'gpu_monitor.devices=["0"]')
    found.prometheus.wait("tardigrade_gpu_readable == 1")
    stub.say(gpus=1, lost=1)
    found.tells(fault_guide.SICK_GPU)


def test_a_slow_client(watched: Callable[..., Watched]) -> None:
    found = watched("--set", "gateway.unread_s=1.0")
    body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 8000, "stream": True, "n": 8})
    with socket.create_connection(("127.0.0.1", found.server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        client.sendall(f"{head}\r\n\r\n{body}".encode())
        found.tells(fault_guide.SLOW_CLIENT)  # it reads nothing


def test_poison(watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, _DEADLY, monkeypatch)
    found = watched()
    body = {"tokens": [5, _POISON, 6], "max_tokens": 9}
    assert httpx.post(f"{found.server.url}/v1/generate", json=body, timeout=DEADLINE_S).status_code == 422
    found.tells(fault_guide.POISON)


def test_a_lost_link(watched: Callable[..., Watched]) -> None:
    """A scheduler is stopped for longer than its peers wait for an answer, and nobody replaces it."""
    patience = ("--set", "supervisor.frozen_s=300.0", "--set", "supervisor.suspended_s=300.0")
    found = watched(*patience)
    scheduler = found.server.child("scheduler/0")
    with found.asking([1, 2, 3]):
        os.kill(int(scheduler.pid), signal.SIGSTOP)
        try:
            found.tells(fault_guide.LOST_LINK)
        finally:
            os.kill(int(scheduler.pid), signal.SIGCONT)
    answer = httpx.post(f"{found.server.url}/v1/generate", json={"tokens": [1], "max_tokens": 4}, timeout=DEADLINE_S)
    assert (answer.status_code, found.server.child("scheduler/0").incarnation) == (200, scheduler.incarnation)


def test_a_bad_configuration(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "server.toml").write_text("[gateway]\nno_such_key = 1\n")
    start = f"supervisor start --port {port} --config server.toml"
    for command in (start, fault_guide.BAD_CONFIGURATION.command):
        refused = shown_by(command, tmp_path)
        assert (refused.returncode, "gateway.no_such_key" in refused.stderr.splitlines()[-1]) == (2, True), command
    with prometheus(tmp_path / "prometheus", f"http://127.0.0.1:{port}") as watching:
        guide = fault_guide.BAD_CONFIGURATION
        metric_s, alert_s = told_by(watching, guide)
        print(f"{guide.fault}: metric {metric_s:.1f} s, alert {alert_s:.1f} s, log none")


def test_a_certificate_at_its_end(watched: Callable[..., Watched], tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", days=1)
    signed = authority.signed()
    found = watched("--tls-cert", str(signed.cert), "--tls-key", str(signed.key), ca=authority.cert)
    found.tells(fault_guide.EXPIRED_CERTIFICATE)
    (tmp_path / "server.pem").write_bytes(signed.cert.read_bytes())
    shown = shown_by(fault_guide.EXPIRED_CERTIFICATE.command, tmp_path)
    assert "notAfter=" in shown.stdout, shown.stderr


def test_a_flood_of_a_tenant(watched: Callable[..., Watched], tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text("[tenants.loud]\nrequests_per_min = 1\n")
    found = watched("--api-keys", "--config", str(tmp_path / "limits.toml"), has_keys=True)
    key = add_key(found.server.run_dir, "loud")
    with found.asking([1, 2, 3], {"Authorization": f"Bearer {key}"}):
        found.tells(fault_guide.TENANT_FLOOD)


def test_memory_used_up(watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's count is a file of the test; the kill is a real one."""
    counters = tmp_path / "memory.events"
    counters.write_text("oom_kill 0\n")
    plant(tmp_path, _COUNTED.format(counters=str(counters)), monkeypatch)
    found = watched()
    counters.write_text("oom_kill 1\n")
    found.server.kill("worker/0.0", signal.SIGKILL)
    found.tells(fault_guide.OUT_OF_MEMORY)


def test_a_frozen_step(watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = FaultyDevices(tmp_path)
    devices.plant(monkeypatch)
    found = watched("--set", "worker.hash_chain_step_s=0.002", "--set", "supervisor.cpu_step_s=3.0")
    devices.break_it("worker/0.0", "hang")
    with found.asking([1, 2, 3]):
        found.tells(fault_guide.FROZEN)
        devices.repair("worker/0.0", "hang")
    found.server.wait_serving()
