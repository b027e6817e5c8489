"""Facts of the host: the devices that NVML and CUDA_VISIBLE_DEVICES show, and the plan that the command line makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpu_workers.embedding.settings import EmbedderSettings
from gpu_workers.runner.memory_estimate import GIB
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.config.fallback_settings import FallbackSettings
from supervisor.config.server_config import ServerConfig
from supervisor.placement import host
from supervisor.placement.hardware import Gpu
from supervisor.placement.host import VISIBLE_VARIABLE, files_needed, find_gpus, plan_start


class FakeNvml:
    """Two kinds of devices behind the functions of pynvml that are used. A handle is the index of a device."""

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, n: int = 4, has_driver: bool = True) -> None:
        self._n, self._has_driver = n, has_driver
        self.is_open = False

    def nvmlInit(self) -> None:
        if not self._has_driver:
            raise self.NVMLError("no driver")
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return self._n

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self._n:
            raise self.NVMLError("no such device")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "MIG-5":
            raise self.NVMLError("no such device")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> int:
        return 0

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}f"

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return b"NVIDIA H200 MIG 1g" if handle == "MIG-5" else b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        class Memory:
            total = 16 * GIB if handle == "MIG-5" else 139 * GIB

        return Memory

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        if handle == "MIG-5":
            raise self.NVMLError("not supported")
        return 9, 0


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ["0", "1", "2", "3"]),
        ("", []),
        ("2, 0", ["2", "0"]),
        ("GPU-1f,3", ["GPU-1f", "3"]),
        ("GPU-1", ["GPU-1"]),
        ("GPU-", []),  # of several
        ("1,7,0", ["1"]),  # CUDA stops at the first that is not there
        ("-1,0", []),
        ("NoDevFiles", []),
    ],
)
def test_gpus_are_those_that_can_be_seen(visible: str | None, ids: list[str]) -> None:
    nvml = FakeNvml()
    found = find_gpus(visible, nvml)
    assert [gpu.device_id for gpu in found] == ids
    assert all(gpu == Gpu(gpu.device_id, "NVIDIA H200", 139 * GIB, (9, 0)) for gpu in found)
    assert not nvml.is_open


def test_a_slice_of_a_device_has_its_own_memory_and_the_capability_of_the_device() -> None:
    assert find_gpus("MIG-5,MIG-6", FakeNvml()) == (Gpu("MIG-5", "NVIDIA H200 MIG 1g", 16 * GIB, (9, 0)),)


def test_without_a_driver_there_are_none() -> None:
    assert find_gpus(None, FakeNvml(has_driver=False)) == ()
    assert find_gpus("0", FakeNvml(has_driver=False)) == ()


def test_all_visible_gpus_are_used_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find_gpus", lambda visible: find_gpus(visible, FakeNvml()))
    monkeypatch.delenv(VISIBLE_VARIABLE, raising=False)
    text = (
        "4 GPUs: 4 replicas x tp 1, bfloat16, weights take 0.3 of 139 GiB on each GPU, 1,024 sequences at once,"
        " a standby for each replica"
    )
    assert plan_start(ServerConfig()).text() == text
    assert plan_start(ServerConfig(gpus=2)).ranks == 2
    assert plan_start(ServerConfig(gpus=0)).device == "cpu"
    assert plan_start(ServerConfig(model="hash-chain")).device == "cpu"
    with pytest.raises(ConfigError, match=r"^tp: expected 1, 2 or 3 .*, got 4$"):
        plan_start(ServerConfig(tp=4))
    with pytest.raises(ConfigError, match=r"^worker\.disk_cache_bytes: expected 0 without worker\.host_cache_bytes .*, got 7$"):
        plan_start(ServerConfig(worker=WorkerSettings(disk_cache_bytes=7)))
    with pytest.raises(ConfigError, match=r"^worker\.kv_least_bytes: expected 0 on GPUs, .*, got 7$"):
        plan_start(ServerConfig(worker=WorkerSettings(kv_least_bytes=7)))
    assert plan_start(ServerConfig(gpus=0, worker=WorkerSettings(kv_least_bytes=7))).device == "cpu"
    sized = WorkerSettings(host_cache_bytes=1 << 20, host_cache_least_bytes=1 << 10)
    with pytest.raises(ConfigError, match=r"^worker\.host_cache_least_bytes: expected 0 on GPUs, .*, got 1024$"):
        plan_start(ServerConfig(worker=sized))
    assert plan_start(ServerConfig(gpus=0, worker=sized)).device == "cpu"
    compressed = WorkerSettings(host_cache_bytes=1 << 20, host_cache_dtype="adaptive")
    assert plan_start(ServerConfig(tp=3, worker=compressed)).device == "cuda"
    monkeypatch.setenv(VISIBLE_VARIABLE, "3,1")
    assert [gpu.device_id for gpu in plan_start(ServerConfig()).gpus] == ["3", "1"]
    with pytest.raises(ConfigError, match=r"^gpus: expected at most 2 \(2 x NVIDIA H200\), got 4$"):
        plan_start(ServerConfig(gpus=4))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (ServerConfig(gpus=4, tp=3), "gpus: expected 0 (CPU cores; no GPU is visible here), got 4"),
        (ServerConfig(gpus=4, tp=4), "got 4; it works with --gpus 0 --tp 3 --replicas 1"),
        (ServerConfig(gpus=4, tp=4, model="/no/such/model"), "gpus: expected 0 (CPU cores; no GPU is visible here), got 4"),
        (ServerConfig(gpus=10**9, tp=10**9), "got 1000000000; it works with --gpus 0 --tp 9 --replicas 1"),
        (ServerConfig(model="hash-chain", tp=10**9), "GiB of memory), got 1000000000"),
        (ServerConfig(model="hash-chain", replicas=10**9), "GiB of memory), got 1000000000"),
        (ServerConfig(tp=65), "tp: expected 1, 2, 3 or 9 (the model has 3 KV heads and 9 heads), got 65"),
    ],
)
def test_without_gpus_a_refusal_names_what_works_on_cpu_cores(
    config: ServerConfig, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "find_gpus", lambda visible: ())
    with pytest.raises(ConfigError) as refused:
        plan_start(config)
    assert str(refused.value).endswith(said)


def test_the_gpu_of_the_embedder_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(device: str) -> ServerConfig:
        return ServerConfig(gpus=0, embedding_model="all-MiniLM-L6-v2", embedder=EmbedderSettings(device=device))

    monkeypatch.setattr(host, "find_gpus", lambda visible: ())
    assert plan_start(config("cpu")).device == "cpu"
    with pytest.raises(ConfigError, match=r"^embedder.device: expected cpu \(no GPUs are visible here\), got cuda$"):
        plan_start(config("cuda"))
    monkeypatch.setattr(host, "find_gpus", lambda visible: find_gpus(visible, FakeNvml(2)))
    assert plan_start(config("cuda")).device == plan_start(config("cuda:1")).device == "cpu"
    with pytest.raises(ConfigError, match=r"^embedder.device: expected cpu or cuda:0 or cuda:1 \(2 GPUs .*, got cuda:2$"):
        plan_start(config("cuda:2"))


@pytest.mark.parametrize(
    ("own", "settings", "said"),
    [
        ("hash-chain", {}, r"^fallback_model: expected another name than the main model's, got 'hash-chain'; set fallback.mod"),
        ("/no/such/model", {}, r"^fallback_model: /no/such/model: no such file or folder"),
        ("smollm2", {"max_length": 10**6}, r"^fallback.max_length: expected at most 8192 \(the model's\), got 1000000$"),
        ("smollm2", {"quantization": "fp8"}, r"^fallback_model: worker.quantization: expected .* on CPU cores, got \"fp8\""),
    ],
)
def test_a_fallback_model_that_cannot_be_served_is_refused(own: str, settings: dict[str, Any], said: str) -> None:
    config = ServerConfig(model="hash-chain", gpus=0, fallback_model=own, fallback=FallbackSettings(**settings))
    with pytest.raises(ConfigError, match=said):
        plan_start(config)


def test_a_model_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^model: /no/such/model: no such file or folder"):
        plan_start(ServerConfig(model="/no/such/model"))


def test_a_folder_without_its_weights_is_refused_before_a_process_starts(tmp_path: Path) -> None:
    keys = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(keys | {"intermediate_size": 128, "max_position_embeddings": 64}))
    with pytest.raises(ConfigError, match=r"^model: .*: expected weights in .safetensors files, got a folder that has none$"):
        plan_start(ServerConfig(model=str(tmp_path), gpus=0))
    assert plan_start(ServerConfig(model=str(tmp_path), gpus=0, worker=WorkerSettings(load_format="random"))).device == "cpu"


def test_weights_that_are_cut_off_are_refused_before_a_process_starts(tmp_path: Path) -> None:
    keys = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(keys | {"intermediate_size": 128, "max_position_embeddings": 64}))
    save_file({"a": np.zeros(300, np.float32), "b": np.zeros((2, 2), np.float16)}, tmp_path / "model.safetensors")
    config = ServerConfig(model=str(tmp_path), gpus=0)
    assert plan_start(config).device == "cpu"
    path, whole = tmp_path / "model.safetensors", (tmp_path / "model.safetensors").read_bytes()
    expected = rf"^model: {path}: expected {len(whole)} bytes, as its header says, got {len(whole) - 1}$"
    for content, said in (
        (whole[:-1], expected),
        (whole + b"0", rf"expected {len(whole)} bytes, as its header says, got {len(whole) + 1}$"),
        (whole[:40], "expected a safetensors file, got 40 bytes without a whole header$"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n", "got a pointer of Git LFS; `git lfs pull`"),
        (b"", "expected a safetensors file, got 0 bytes without a whole header$"),
        (b"\x02" + bytes(7) + b"[]", "expected a safetensors file, got a header that cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=said):
            plan_start(config)


def test_too_few_open_files_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a server whose processes fail one after the other, later."""
    config = ServerConfig(model="hash-chain", gpus=0)
    needed = files_needed(6)
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (40, needed))
    assert plan_start(config).device == "cpu"
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (40, needed - 1))
    said = rf"open files: expected a hard limit of at least {needed} for 6 processes, got {needed - 1} \(ulimit -Hn\)"
    with pytest.raises(ConfigError, match=said):
        plan_start(config)
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (40, host.resource.RLIM_INFINITY))
    assert plan_start(config).device == "cpu"
    assert files_needed(100) > files_needed(6)
