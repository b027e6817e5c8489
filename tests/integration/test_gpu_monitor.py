"""A real server with a stand-in for NVML: the sensors are in /metrics, in /v1/metrics and in `supervisor status`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from messages.lifecycle.gpu_figures import gpu_figures
from messages.lifecycle.tree import StatusReport
from tests.support.nvml.stub_library import StubNvml
from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.slow

_MONITOR = "gpu_monitor/0"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubNvml]:
    stub = StubNvml(tmp_path)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    stub.say(gpus=2, busy=87, watts=412, celsius=61, used=71_200_000_000)
    yield stub
    stub.say(gpus=2)


def figures_in(report: StatusReport) -> dict[str, float | None]:
    statistics = next((child.statistics for child in report.children if child.name == _MONITOR), {})
    return {gpu: figures.busy_percent for gpu, figures in gpu_figures(statistics).items()}


def table_of(server: RealServer) -> str:
    command = [sys.executable, "-m", "supervisor", "status", "--run-dir", str(server.run_dir)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_operators_see_the_gpus_and_a_hung_driver_stops_nothing(stub: StubNvml) -> None:
    flags = ("--model", "hash-chain", "--set", 'gpu_monitor.devices=["0", "1"]', "--set", "gpu_monitor.hung_s=1.0")
    with real_server(*flags) as server:
        server.wait_for(lambda report: figures_in(report) == {"0": 87.0, "1": 87.0})
        assert "GPU 1: busy 87 %, memory 71.2 of 80.0 GB, 412 of 700 W, 61 °C\n" in table_of(server)
        summary = httpx.get(f"{server.url}/v1/metrics").json()
        assert summary["actors"][_MONITOR]["power_watts of gpu 1"] == 412.0
        stub.say(gpus=2, hang=1)
        server.wait_for(lambda report: figures_in(report) == {"0": None, "1": None})
        assert "GPU 0: cannot be read: the log of gpu_monitor/0 says why\n" in table_of(server)
        answer = httpx.post(f"{server.url}/v1/generate", json={"tokens": [1, 2, 3], "max_tokens": 4}, timeout=60.0)
        assert answer.status_code == 200
        incarnation = server.kill(_MONITOR)
        server.wait_new_incarnation(_MONITOR, incarnation)  # a new process, whose calls hang too
        server.wait_for(lambda report: figures_in(report) == {"0": None, "1": None})
        stub.say(gpus=2, busy=5)
        server.wait_for(lambda report: figures_in(report) == {"0": 5.0, "1": 5.0})
        sample = 'tardigrade_gpu_busy_ratio{actor="gpu_monitor/0",gpu="0"} 0.05'
        server.wait_for(lambda report: sample in httpx.get(f"{server.url}/metrics").text)  # with the next beat with metrics


def test_without_gpus_there_is_no_monitor(stub: StubNvml) -> None:
    with real_server("--model", "hash-chain") as server:
        assert not [child.name for child in server.status().children if child.name == _MONITOR]
