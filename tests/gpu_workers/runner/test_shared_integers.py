"""Weights of integers in the vault: loaded once, mapped by later processes, whatever their shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gpu_workers.cpu.kernels.machine import this_machine
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.empty_step import run_empty_step
from gpu_workers.runner.model_loading import build_model
from gpu_workers.settings import Quantization
from gpu_workers.vault.weight_vault import WeightVault
from tests.support.custody.descriptor_store import StoreProcess
from tests.support.kernels.exact_model import write_exact_model
from tests.support.quantized.writer import write_quantized
from tests.support.workers.tiny_model import write_model

pytestmark = pytest.mark.slow

if this_machine() is None:
    pytest.skip("needs llvmlite and a processor that kernels are written for", allow_module_level=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    one = StoreProcess(tmp_path / "vault-0")
    yield one
    one.kill()


def logits(folder: Path, vault: WeightVault | None, dtype: torch.dtype, quantization: Quantization = "int8") -> torch.Tensor:
    placement = WeightPlacement(torch.device("cpu"), dtype, quantization=quantization)
    model = build_model(read_model_config(folder), folder, placement, vault=vault)
    return run_empty_step(model, KvPages.allocate(model.kv_shape, 8, "cpu"), [1, 1, 20])


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_later_process_computes_the_same_without_the_checkpoint(
    store: StoreProcess, tmp_path: Path, dtype: torch.dtype, quantization: Quantization
) -> None:
    """The sizes of this model are multiples of no block."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_model(folder)
    right = logits(folder, None, dtype, quantization)
    assert not right.equal(logits(folder, None, dtype, "none"))
    first, second = (WeightVault(store.path, "worker/0.0 weights", b"tiny") for _ in range(2))
    assert logits(folder, first, dtype, quantization).equal(right)
    (folder / "model.safetensors").unlink()
    first.close()  # the first process has gone; its memory stays
    assert logits(folder, second, dtype, quantization).equal(right)


def test_stored_integers_are_shared_beside_floats(store: StoreProcess, tmp_path: Path) -> None:
    """Which weights have integers is known only when they are read, so memory is counted for floats."""
    folder = tmp_path / "exact"
    folder.mkdir()
    write_exact_model(folder)
    right = logits(folder, None, torch.float32, "exact")
    first, second = (WeightVault(store.path, "worker/0.0 weights", b"exact") for _ in range(2))
    assert logits(folder, first, torch.float32, "exact").equal(right)
    (folder / "model.safetensors").unlink()
    first.close()
    assert logits(folder, second, torch.float32, "exact").equal(right)


@pytest.mark.parametrize(("kind", "quantization"), [("packed uneven", "int4"), ("int8 rows", "exact")])
def test_integers_of_a_quantised_checkpoint_are_shared(
    store: StoreProcess, tmp_path: Path, kind: str, quantization: Quantization
) -> None:
    """Memory is counted from the checkpoint's headers, with a layer that it leaves in floats."""
    (tmp_path / "plain").mkdir()
    folder, _ = write_quantized(write_model(tmp_path / "plain"), tmp_path, kind, left=("layers.0.mlp.down_proj",))
    right = logits(folder, None, torch.float32, quantization)
    first, second = (WeightVault(store.path, "worker/0.0 weights", b"small") for _ in range(2))
    assert logits(folder, first, torch.float32, quantization).equal(right)
    (folder / "model.safetensors").unlink()
    first.close()
    assert logits(folder, second, torch.float32, quantization).equal(right)
