"""Quantised checkpoints become the floats that they stand for, whole and in parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_workers.cuda import fp8_weights
from gpu_workers.layers.quantized.stored_weight import StoredWeight
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.torch_ops import TorchOps
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import ModelWeights, load_weights, tensor_shapes
from gpu_workers.models.quantized.source import QuantizedSource
from gpu_workers.models.weight_memory import PrivateWeights
from gpu_workers.models.weights import SafetensorsSource, TensorSource, WeightPlacement, WeightReader, WeightsError
from tests.support.quantized.writer import FORMATS, write_quantized
from tests.support.workers.tiny_model import write_model

CPU = WeightPlacement(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("plain"), num_hidden_layers=2, vocab_size=32)


def _source_of(folder: Path, *, reads: bool = True) -> QuantizedSource:
    form = read_model_config(folder).quantized
    assert form is not None
    return QuantizedSource(folder, form, reads=reads)


def _load(folder: Path, source: TensorSource, rank: int, size: int) -> ModelWeights:
    config = read_model_config(folder)
    assert isinstance(config, LlamaConfig)
    return load_weights(config, shard_model(config, rank, size), WeightReader(tensor_shapes(config), source, CPU, Plain()))


class Plain(TorchOps):
    """Weights stay as they are."""

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        return weight


@pytest.mark.parametrize("kind", FORMATS)
def test_every_rank_reads_what_its_part_stands_for(kind: str, plain: Path, tmp_path: Path) -> None:
    """One rank, and two whose columns begin within a word, a group and a block."""
    quantized, floats = write_quantized(plain, tmp_path, kind, left=("layers.1.mlp.down_proj",))
    for rank, size in ((0, 1), (0, 2), (1, 2)):
        got = _load(quantized, _source_of(quantized), rank, size)
        wanted = _load(floats, SafetensorsSource(floats), rank, size)
        for layer, other in zip(got.layers, wanted.layers, strict=True):
            for part in ("qkv", "output", "gate_up", "down"):
                assert getattr(layer, part).equal(getattr(other, part)), f"{kind}: {part} of rank {rank} of {size}"


def test_what_the_file_leaves_in_floats_is_known(plain: Path, tmp_path: Path) -> None:
    quantized, _ = write_quantized(plain, tmp_path, "fp8 rows", left=("layers.1.mlp.down_proj",))
    source = _source_of(quantized)
    names = ("model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight", "lm_head.weight")
    assert [source.leaves_floats(name) for name in names] == [False, True, True]
    assert source.stored(names[1], range(64), range(96), torch.device("cpu")) is None


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_counted_has_the_sizes_of_what_is_read(kind: str, plain: Path, tmp_path: Path) -> None:
    quantized, _ = write_quantized(plain, tmp_path, kind)
    name, part = "model.layers.0.mlp.down_proj.weight", (range(3, 40), range(10, 70))
    read, counted = (_source_of(quantized, reads=reads).stored(name, *part, torch.device("cpu")) for reads in (True, False))
    assert read is not None
    assert counted is not None
    assert counted.numbers.is_meta
    for key in ("numbers", "scales", "zeros"):
        one, other = getattr(read, key), getattr(counted, key)
        assert (one is None) == (other is None)
        assert one is None or (one.shape, one.dtype) == (other.shape, other.dtype)
    assert (read.groups is None) == (counted.groups is None)


class Fp8(Plain):
    """Packs as ranks on GPUs do."""

    takes_stored = True

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        return fp8_weights.pack(weight)

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        return weight

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        return fp8_weights.pack_stored(stored)


@pytest.mark.parametrize("kind", ["fp8 rows", "deepseek", "int8 rows"])
def test_the_memory_for_weights_is_counted_before_they_are_read(kind: str, plain: Path, tmp_path: Path) -> None:
    """What the file leaves in floats has its size too. The rest becomes 8-bit floats of rows, whatever it was."""
    quantized, _ = write_quantized(plain, tmp_path, kind, left=("layers.1.mlp.down_proj",))
    config = read_model_config(quantized)
    kept: list[dict[str, torch.Tensor]] = []
    for reads in (True, False):
        memory = Kept()
        placement = WeightPlacement(torch.device("cpu" if reads else "meta"), torch.float32, memory)
        assert isinstance(config, LlamaConfig)
        reader = WeightReader(tensor_shapes(config), _source_of(quantized, reads=reads), placement, Fp8())
        load_weights(config, shard_model(config, 0, 1), reader)
        kept.append(memory.tensors)
    read, counted = ({name: (each.shape, each.dtype) for name, each in tensors.items()} for tensors in kept)
    assert read == counted
    assert [read[f"model.layers.{i}.mlp.down_proj.weight"][1] for i in (0, 1)] == [torch.uint8, torch.float32]


class Kept(PrivateWeights):
    """Remembers what is kept."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def keep(self, name: str, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        self.tensors[name] = make()
        return self.tensors[name]


def _spoil(folder: Path, change: dict[str, torch.Tensor | None]) -> None:
    """Removes or replaces tensors of a checkpoint."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in change.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors")


def test_biases_of_zeros_that_older_programs_have_added_are_passed_over(plain: Path, tmp_path: Path) -> None:
    quantized, _ = write_quantized(plain, tmp_path, "gptq")
    names = [f"model.layers.0.mlp.{layer}_proj.bias" for layer in ("up", "gate")]
    _spoil(quantized, {names[0]: torch.zeros(96), names[1]: torch.ones(96)})
    assert [name in _source_of(quantized).shapes() for name in names] == [False, True]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("fp8 rows", {"weight_scale": None}, "q_proj.weight: expected a weight_scale beside F8_E4M3, got none"),
        ("fp8 rows", {"weight_scale": torch.ones(3, 1)}, r"q_proj.weight_scale: expected \[64, 1\], got \[3, 1\]"),
        ("deepseek", {"weight_scale_inv": torch.ones(2, 1)}, r"q_proj.weight_scale_inv: expected \[2, 2\], got \[2, 1\]"),
        ("int8 rows", {"weight": torch.ones(64, 64)}, r"expected F8_E4M3 or I8 beside weight_scale, got F32"),
        ("packed", {"weight_scale": torch.ones(64, 5)}, r"q_proj.weight_scale: expected \[64, 2\], got \[64, 5\]"),
        ("awq", {"scales": None}, r"q_proj.scales: expected \[2, 64\], got none"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    kind: str, change: dict[str, torch.Tensor | None], message: str, plain: Path, tmp_path: Path
) -> None:
    quantized, _ = write_quantized(plain, tmp_path, kind)
    _spoil(quantized, {f"model.layers.0.self_attn.q_proj.{key}": tensor for key, tensor in change.items()})
    with pytest.raises(WeightsError, match=message):
        _source_of(quantized)
