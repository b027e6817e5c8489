"""pull, models, show and rm over a hub on this machine that breaks connections, with a cache of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from gpu_workers.model_store.gguf_folder import folder_of_gguf
from gpu_workers.model_store.hub_cache.resumable import INCOMPLETE
from supervisor.directories.run_dir_files import SERVER
from supervisor.library import in_use
from supervisor.library.in_use import servers_using
from supervisor.library.stored_model import find_stored, stored_models
from tests.support.hub.fake_hub import FakeHub, fake_hub, sha256_of
from tests.support.hub.small_gguf import TEMPLATE, gguf_content

pytestmark = pytest.mark.slow
DEADLINE_S = 120.0
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}
WEIGHTS = save({"a": np.random.default_rng(1).random((500, 500))})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with two models, and an empty cache."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("TARDIGRADE_CACHE", str(tmp_path / "converted"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    files = {
        "config.json": json.dumps(CONFIG).encode(),
        "generation_config.json": b'{"eos_token_id": 1}',
        "model.safetensors": WEIGHTS,
        "chat_template.jinja": TEMPLATE.encode(),
        "README.md": b"---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\nlicense: none\n",
        "onnx/model.onnx": bytes(20_000),
    }
    models = {"org/model": files, "org/files": {"small.Q8_0.gguf": gguf_content(tmp_path), "other.gguf": b"GGUF" * 9000}}
    with fake_hub(models) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "supervisor", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def listed() -> dict[str, dict[str, Any]]:
    """The models that came from the hub, by name."""
    rows = json.loads(call("models", "--json").stdout)
    return {row["model"]: row for row in rows if row["source"] != "package"}


def test_a_model_is_pulled_listed_shown_and_removed(hub: FakeHub, tmp_path: Path) -> None:
    hub.breaks_after = [700_000]
    pulled = call("pull", "org/model")
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout.startswith("org/model: 2 MB, 1 replica x tp 1 on ")
    assert "org/model: 2.0 of 2.0 MB" in pulled.stderr
    assert [asked for _, asked in hub.ranges] == ["", "bytes=700000-"], "the client has nothing large left to fetch"
    row = listed()["org/model"]
    assert (row["type"], row["context_tokens"], row["weights"], row["license"]) == ("llama", 256, "bfloat16", "apache-2.0")
    assert row["lacks"] == ""
    assert (Path(row["path"]) / "model.safetensors").read_bytes() == WEIGHTS
    assert not (Path(row["path"]) / "onnx").exists()
    hub.ranges.clear()
    assert call("pull", "org/model").returncode == 0
    assert hub.ranges == [], "it is here"
    assert call("show", "org/model", "--template").stdout == f"{TEMPLATE}\n"
    assert "n_layers 2" in call("show", "org/model").stdout
    assert "org/model" in call("models").stdout
    assert call("rm", "org/model").stderr == "supervisor: expected --yes without a terminal, got none\n"
    removed = call("rm", "org/model", "--yes")
    assert removed.returncode == 0, removed.stderr
    assert listed() == {}
    assert list((tmp_path / "hf" / "hub").glob("models--*")) == []


def test_a_file_is_pulled_and_named_by_its_path(hub: FakeHub, tmp_path: Path) -> None:
    name = "org/files/small.Q8_0.gguf"
    missing = call("check-config", "--model", name)
    assert f"model: {name}: no such file; if it is on the hub, `supervisor pull {name}` fetches it" in missing.stderr
    assert call("pull", name).returncode == 0
    row = listed()[name]
    assert (row["type"], row["weights"], row["license"], row["context_tokens"]) == ("qwen2", "Q8_0", "mit", 128)
    assert json.loads(call("show", name, "--json").stdout)["template"] == TEMPLATE
    stored = find_stored(name)
    assert stored is not None
    assert stored.gguf is not None
    converted = folder_of_gguf(stored.gguf, "small.Q8_0")
    converted.mkdir(parents=True)
    (converted / "weights").write_bytes(bytes(1000))
    before = find_stored(name)
    assert before is not None
    assert before.n_bytes == stored.n_bytes + 1000
    assert call("rm", name, "--yes").returncode == 0
    assert not converted.exists()
    assert listed() == {}


def test_an_interrupted_pull_goes_on(hub: FakeHub, tmp_path: Path) -> None:
    digest = sha256_of(WEIGHTS)
    hub.breaks_after, hub.refuses_range = [500_000], True
    blobs = tmp_path / "hf" / "hub" / "models--org--model" / "blobs"
    command = [sys.executable, "-m", "supervisor", "pull", "org/model"]
    pull = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert pull.stderr is not None
    assert pull.stderr.readline().startswith("org/model: ")
    while not any(asked for _, asked in hub.ranges):  # the connection has broken
        assert pull.poll() is None
    os.kill(pull.pid, signal.SIGINT)
    _, said = pull.communicate(timeout=DEADLINE_S)
    assert (pull.returncode, said.splitlines()[-1]) == (1, "supervisor: interrupted; supervisor pull org/model goes on")
    assert (blobs / f"{digest}{INCOMPLETE}").read_bytes() == WEIGHTS[:500_000]
    assert listed()["org/model"]["lacks"] == "not whole: the supervisor pull that was interrupted goes on"
    hub.refuses_range = False
    assert call("pull", "org/model").returncode == 0
    assert hub.ranges[-1] == (digest, "bytes=500000-")
    assert (blobs / digest).read_bytes() == WEIGHTS


def test_wrong_content_is_refused(hub: FakeHub) -> None:
    digest = sha256_of(WEIGHTS)
    hub.sends[digest] = WEIGHTS[:-1] + b"x"
    pulled = call("pull", "org/model")
    assert pulled.returncode == 2
    assert f"expected SHA-256 {digest}, got " in pulled.stderr
    assert "org/model" not in listed()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["pull", "org/nothing"], "model: org/nothing: expected a folder here, or a model that the Hugging Face hub gives"),
        (["pull", "org/files/nothing.gguf"], "model: org/files: expected the file nothing.gguf on the hub, got none"),
        (
            ["pull", "hash-chain"],
            "model: expected a model on the hub or smollm2, all-MiniLM-L6-v2, got hash-chain, which is here",
        ),
        (["pull", "nothing"], "model: nothing: no such file or folder; expected smollm2, "),
        (["show", "org/model"], "org/model: expected a model that `supervisor models` lists, got none; `supervisor pull`"),
        (["rm", "org/model"], "org/model: expected a model that `supervisor models` lists, got none"),
    ],
)
def test_what_is_not_there_is_said(hub: FakeHub, argv: list[str], said: str) -> None:
    done = call(*argv)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"supervisor: {said}"), done.stderr


def test_a_model_that_a_server_uses_stays(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("pull", "org/model").returncode == 0
    model = find_stored("org/model")
    assert model is not None
    by_name, by_folder, other = (tmp_path / name for name in ("one", "two", "three"))
    saved = {by_name: {"model": "org/model"}, by_folder: {"model_folder": str(model.path)}, other: {"model": "org/model-2"}}
    for run_dir, content in saved.items():
        run_dir.mkdir()
        (run_dir / SERVER).write_text(json.dumps(content))
    monkeypatch.setattr(in_use, "running", lambda: iter([(run_dir, 1) for run_dir in (*saved, tmp_path / "gone")]))
    assert servers_using(model) == [f"port 1 ({by_name})", f"port 1 ({by_folder})"]


def test_packaged_models_are_always_listed() -> None:
    assert "smollm2" in {model.name for model in stored_models()}
