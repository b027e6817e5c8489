"""Reading checkpoints: what does not fit is named, shards are parts of the whole, random weights are the same everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gpu_workers.layers.shard import shard_model
from gpu_workers.model_store.config_keys import ConfigKeys
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import ModelWeights, load_weights, tensor_shapes
from gpu_workers.models.phi3 import read_phi3
from gpu_workers.models.weights import (
    RandomSource,
    SafetensorsSource,
    TensorSource,
    WeightPlacement,
    WeightReader,
    WeightsError,
)

CONFIG = LlamaConfig("qwen2", 2, 24, 6, 3, 4, 10, 17, 64, qkv_bias=True)
PHI3 = {
    "model_type": "phi3",
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 10,
    "vocab_size": 17,
}
CPU = WeightPlacement(torch.device("cpu"), torch.float32)


def _checkpoint() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in tensor_shapes(CONFIG).items()}


def _load(source: TensorSource, rank: int = 0, size: int = 1) -> ModelWeights:
    return load_weights(CONFIG, shard_model(CONFIG, rank, size), WeightReader(tensor_shapes(CONFIG), source, CPU))


def test_fused_tensors_hold_the_checkpoint(tmp_path: Path) -> None:
    tensors = _checkpoint()
    save_file(tensors, tmp_path / "model.safetensors")
    weights = _load(SafetensorsSource(tmp_path))
    first = "model.layers.1.self_attn."
    expected = torch.cat([tensors[f"{first}{x}_proj.weight"] for x in "qkv"])
    assert weights.layers[1].qkv.equal(expected)
    bias = weights.layers[1].qkv_bias
    assert bias is not None
    assert bias.equal(torch.cat([tensors[f"{first}{x}_proj.bias"] for x in "qkv"]))
    assert weights.embedding.equal(tensors["model.embed_tokens.weight"])
    assert weights.head.equal(tensors["lm_head.weight"])


def test_a_model_without_a_head_is_saved_with_shorter_names(tmp_path: Path) -> None:
    tensors = _checkpoint()
    del tensors["lm_head.weight"]
    save_file({name.removeprefix("model."): tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"1 tensors do not fit .*: missing lm_head.weight"):
        _load(SafetensorsSource(tmp_path))
    config = replace(CONFIG, has_head=False)
    reader = WeightReader(tensor_shapes(config), SafetensorsSource(tmp_path), CPU)
    weights = load_weights(config, shard_model(config, 0, 1), reader)
    assert weights.head is None
    assert weights.layers[1].down.equal(tensors["model.layers.1.mlp.down_proj.weight"])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_checkpoint_of_fused_projections_gives_the_same_parts(size: int, tmp_path: Path) -> None:
    apart = replace(CONFIG, qkv_bias=False)
    together = replace(apart, names=read_phi3(ConfigKeys(PHI3)).names)
    tensors = {name: tensor for name, tensor in _checkpoint().items() if not name.endswith("bias")}
    fused = {name: tensor for name, tensor in tensors.items() if not any(f".{x}_proj." in name for x in (*"qkv", "gate", "up"))}
    for layer in ("model.layers.0.", "model.layers.1."):
        qkv = [tensors[f"{layer}self_attn.{x}_proj.weight"] for x in "qkv"]
        fused[f"{layer}self_attn.qkv_proj.weight"] = torch.cat(qkv)
        fused[f"{layer}mlp.gate_up_proj.weight"] = torch.cat([tensors[f"{layer}mlp.{x}_proj.weight"] for x in ("gate", "up")])
    save_file(tensors, tmp_path / "apart.safetensors")
    (tmp_path / "together").mkdir()
    save_file(fused, tmp_path / "together" / "model.safetensors")
    for rank in range(size):
        shard = shard_model(CONFIG, rank, size)
        one, other = (
            load_weights(config, shard, WeightReader(tensor_shapes(config), SafetensorsSource(folder), CPU))
            for config, folder in ((apart, tmp_path), (together, tmp_path / "together"))
        )
        for layer, same in zip(one.layers, other.layers, strict=True):
            assert layer.qkv.equal(same.qkv)
            assert layer.gate_up.equal(same.gate_up)


def test_all_faults_are_named(tmp_path: Path) -> None:
    tensors = _checkpoint()
    del tensors["model.norm.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = torch.zeros(3, 24)
    tensors["model.layers.7.mlp.up_proj.weight"] = torch.zeros(1)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError) as caught:
        _load(SafetensorsSource(tmp_path))
    text = str(caught.value)
    assert "missing model.norm.weight [24]" in text
    assert "unexpected model.layers.7.mlp.up_proj.weight" in text
    assert "model.layers.0.mlp.up_proj.weight: expected [10, 24], got [3, 24]" in text


def test_a_file_that_is_cut_or_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(_checkpoint(), path)
    whole = path.read_bytes()
    for n_bytes in (len(whole) - 1, 100):  # in the tensors, and in the header
        path.write_bytes(whole[:n_bytes])
        with pytest.raises(WeightsError, match=rf"^weights: model\.safetensors is not complete \({n_bytes} of \d+ bytes\)"):
            SafetensorsSource(tmp_path)
    for damaged in (b"", b"{" * 1000, whole[:8] + b"x" * (len(whole) - 8)):
        path.write_bytes(damaged)
        with pytest.raises(WeightsError, match=r"^weights: model\.safetensors is damaged \("):
            SafetensorsSource(tmp_path)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"expected weights in \.safetensors files, got a folder that has none$"):
        SafetensorsSource(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00001.safetensors"}}')
    with pytest.raises(WeightsError, match=r"got a folder without model-00001\.safetensors$"):
        SafetensorsSource(tmp_path)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_shards_are_parts_of_the_same_random_model(size: int) -> None:
    whole = _load(RandomSource(seed=4))
    parts = [_load(RandomSource(seed=4), rank, size) for rank in range(size)]
    assert torch.cat([part.embedding for part in parts])[:17].equal(whole.embedding)
    assert torch.cat([part.layers[0].down for part in parts], 1).equal(whole.layers[0].down)
    assert torch.cat([part.layers[0].output for part in parts], 1).equal(whole.layers[0].output)
    gates = [part.layers[1].gate_up.chunk(2)[0] for part in parts]
    assert torch.cat(gates).equal(whole.layers[1].gate_up[:10])
    assert not _load(RandomSource(seed=5)).embedding.equal(whole.embedding)


@pytest.mark.parametrize(("size", "heads"), [(1, [6]), (2, [4, 2]), (3, [2, 2, 2]), (6, [1] * 6)])
def test_heads_are_split_at_kv_heads(size: int, heads: list[int]) -> None:
    shards = [shard_model(CONFIG, rank, size) for rank in range(size)]
    assert [len(shard.heads) for shard in shards] == heads
    for shard in shards:  # each query head finds its kv head on its own rank
        assert {head // 2 for head in shard.heads} == set(shard.kv_heads)


@pytest.mark.parametrize("size", [4, 5, 12])
def test_impossible_splits_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="tensor parallel size"):
        shard_model(CONFIG, 0, size)
