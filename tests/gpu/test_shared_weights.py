"""Weights on a GPU are loaded once: later processes map them, can only read them, and compute the same."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch

from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.empty_step import run_empty_step
from gpu_workers.runner.model_loading import build_model
from gpu_workers.vault.weight_vault import WeightVault
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.real_server import real_server
from tests.support.supervisor.standby_server import SEATS, hit, wait_standby, wait_statistic
from tests.support.workers.tiny_model import EIGHT_HEADS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
DEADLINE_S = 120.0
LAYERS = {"num_hidden_layers": 24}  # 0.5 GiB in bfloat16


class Loader:
    """A process that builds the model with the weights of a store; see `main`."""

    def __init__(self, store: StoreProcess, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", __name__, str(store.path), str(folder), *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.facts: dict[str, Any] = json.loads(line) if line else {}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)


def main(path: str, folder: str, what: str = "wait") -> None:
    """Build the model and say what came of it. "write": write into the weights then; "die": die while they are loaded."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    device, config = torch.device("cuda", 0), read_model_config(Path(folder))
    torch.zeros(1, device=device)
    before_bytes = torch.cuda.mem_get_info()[0]
    vault = WeightVault(Path(path), "worker/0.0 weights", b"test")

    def on_progress(fraction: float) -> None:
        if what == "die" and fraction > 0.5:
            signal.raise_signal(signal.SIGKILL)

    placement = WeightPlacement(device, torch.bfloat16)
    model: Any = build_model(config, Path(folder), placement, load_format="random", on_progress=on_progress, vault=vault)
    torch.cuda.empty_cache()
    taken_bytes = before_bytes - torch.cuda.mem_get_info()[0]
    logits = run_empty_step(model, KvPages.allocate(model.kv_shape, 8, device), [1, 1, 20])
    total = logits.double().sum().item()
    print(json.dumps({"shared": vault.shared_bytes, "taken": taken_bytes, "logits": total}), flush=True)
    sys.stdin.readline()
    if what == "write":
        model._weights.embedding.fill_(1.0)
        torch.cuda.synchronize()
        print("written", flush=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(EIGHT_HEADS | LAYERS))
    return path


def test_weights_are_on_the_gpu_once(store: StoreProcess, folder: Path) -> None:
    Loader(store, folder, "die").kill()
    first = Loader(store, folder)
    second = Loader(store, folder)  # beside the first one
    first.kill()
    third = Loader(store, folder)
    print(first.facts, second.facts, third.facts)
    assert first.facts["logits"] == second.facts["logits"] == third.facts["logits"]
    assert first.facts["shared"] == second.facts["shared"] == third.facts["shared"] > 500 << 20
    assert first.facts["taken"] >= first.facts["shared"]
    for later in (second, third):
        assert later.facts["taken"] < later.facts["shared"] // 4, "the weights are not there twice"
        later.kill()


def test_a_stray_write_changes_nothing(store: StoreProcess, folder: Path) -> None:
    writer = Loader(store, folder, "write")
    said, _ = writer.process.communicate("go\n", DEADLINE_S)
    assert "written" not in said, "the driver lets a process write what it mapped to be read"
    assert writer.process.returncode != 0
    after = Loader(store, folder)
    assert after.facts["logits"] == writer.facts["logits"]
    after.kill()


def test_a_server_loads_its_weights_once(folder: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model = ("--model", str(folder), "--load-format", "random", "--gpus", "1", "--log-level", "info")
    with real_server(*model, "--standby") as server:
        wait_standby(server)
        for victim in ("active", "vault/0", "standby", "active"):
            hit(server, victim, signal.SIGKILL)
            wait_standby(server)
            wait_statistic(server, "vault/0", "entries", 3.0)
        for name in SEATS:
            server.kill(name)
        found: list[str] = []
        end_s = time.monotonic() + DEADLINE_S
        while found.count("True") < 4 and time.monotonic() < end_s:  # a rank that is killed while it starts says nothing
            time.sleep(0.1)
            found = re.findall(r"weights .*reused=.*?(True|False)", server.log())
        assert found.count("False") == 1
        assert found.count("True") >= 4


if __name__ == "__main__":
    main(*sys.argv[1:])
