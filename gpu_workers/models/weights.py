"""From checkpoint tensors to the fused tensors a rank computes with, read shard by shard; or random ones of the same shape.

A source names tensors as Hugging Face checkpoints do and yields any block of rows and columns of one. Every missing,
unexpected or mis-shaped tensor is named at once, before anything is computed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open

from gpu_workers.layers.shard import Shard
from gpu_workers.model_store.model_config import ModelConfig

RANDOM_STD = 0.02


class WeightsError(ValueError):
    """The checkpoint does not fit the config; the text names each tensor."""


@dataclass(frozen=True)
class LayerWeights:
    """One layer on one rank. Linear weights, [out, in], are as `pack` made them; biases are None where there are none."""

    attention_norm: torch.Tensor  # [hidden]
    qkv: Any  # [(heads + 2 kv_heads) * head_dim, hidden]
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None  # [head_dim]
    k_norm: torch.Tensor | None  # [head_dim]
    output: Any  # [hidden, heads * head_dim]
    output_bias: torch.Tensor | None  # on rank 0 only: the ranks' outputs are summed
    ffn_norm: torch.Tensor  # [hidden]
    gate_up: Any  # [2 * ffn, hidden]
    down: Any  # [hidden, ffn]


@dataclass(frozen=True)
class ModelWeights:
    """All of a rank. Tied embeddings are kept plain and packed, unless `pack` leaves weights as they are."""

    embedding: torch.Tensor  # [vocabulary_rows, hidden]
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor  # [hidden]
    head: Any  # [vocabulary_rows, hidden], packed


class TensorSource(Protocol):
    """Where blocks of named tensors come from. `rows` and `columns` are ranges of the whole tensor."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor that there is; empty when any shape can be made."""
        ...

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """Fills target [len(rows)] or [len(rows), len(columns)] (any dtype and device) from tensor `name` of `shape`."""
        ...


class SafetensorsSource:
    """The *.safetensors files of a folder, mapped, not read, until a block is asked for."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        for path in _weight_files(folder):
            opened: Any = safe_open(path, framework="pt")
            for name in opened.keys():  # noqa: SIM118  (not a mapping)
                self._files[name] = opened

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See TensorSource."""
        return {name: tuple(opened.get_slice(name).get_shape()) for name, opened in self._files.items()}

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """See TensorSource."""
        stored = self._files[name].get_slice(name)
        if columns is None or len(shape) == 1:
            target.copy_(stored[rows.start : rows.stop])
        else:
            target.copy_(stored[rows.start : rows.stop, columns.start : columns.stop])


class RandomSource:
    """Normal weights (norms 1, biases 0), seeded by the tensor's name: any split holds parts of the same model."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See TensorSource."""
        return {}

    def read(self, name: str, shape: tuple[int, ...], rows: range, columns: range | None, target: torch.Tensor) -> None:
        """See TensorSource. Makes the whole tensor in float32 on the target's device and keeps the block."""
        if len(shape) == 1:
            target.fill_(0.0 if name.endswith("bias") else 1.0)
            return
        generator = torch.Generator(device=target.device).manual_seed(self._seed + zlib.crc32(name.encode()))
        whole = torch.randn(shape, generator=generator, device=target.device).mul_(RANDOM_STD)
        block = whole[rows.start : rows.stop]
        target.copy_(block if columns is None else block[:, columns.start : columns.stop])


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in files if not path.is_file()]
    if missing or not files:
        raise WeightsError(f"{folder}: expected safetensors files, missing {', '.join(missing) or '*.safetensors'}")
    return files


@dataclass(frozen=True)
class Placement:
    """Where and how weights are kept. `empty` may be replaced to put them into memory that outlives the process."""

    device: torch.device
    dtype: torch.dtype

    def empty(self, *shape: int) -> torch.Tensor:
        """Memory for one tensor."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)


def load_weights(
    config: ModelConfig,
    shard: Shard,
    source: TensorSource,
    placement: Placement,
    pack: Callable[[torch.Tensor], Any] = lambda weight: weight,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> ModelWeights:
    """Reads the rank's part of every tensor; each linear weight goes through `pack` (see Ops.pack_linear) before the next one
    is read. on_progress gets 0 .. 1. Raises WeightsError naming all that does not fit."""
    shapes = tensor_shapes(config)
    _compare(shapes, source.shapes(), config)
    reader = _Reader(shapes, source, placement)
    embedding = _vocabulary_rows(reader, "model.embed_tokens.weight", shard)
    layers = []
    for index in range(config.n_layers):
        layers.append(_load_layer(reader, f"model.layers.{index}.", config, shard, pack))
        on_progress((index + 1) / config.n_layers)
    head = embedding if config.tied_embeddings else _vocabulary_rows(reader, "lm_head.weight", shard)
    return ModelWeights(embedding, tuple(layers), reader.fused(("model.norm.weight", None)), pack(head))


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor of the whole model."""
    hidden, ffn, head_dim = config.hidden, config.ffn, config.head_dim
    queries, keys = config.n_heads * head_dim, config.n_kv_heads * head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
    }
    if config.qkv_bias:
        layer |= {"self_attn.q_proj.bias": (queries,), "self_attn.k_proj.bias": (keys,), "self_attn.v_proj.bias": (keys,)}
    if config.output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config.qk_norm:
        layer |= {"self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)}
    shapes = {f"model.layers.{i}.{name}": shape for i in range(config.n_layers) for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": (config.vocabulary, hidden), "model.norm.weight": (hidden,)}
    return shapes if config.tied_embeddings else shapes | {"lm_head.weight": (config.vocabulary, hidden)}


def _compare(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    if not found:
        return
    faults = [f"missing {name} {list(expected[name])}" for name in sorted(expected.keys() - found.keys())]
    ignored = {"lm_head.weight"} if config.tied_embeddings else set()
    surplus = sorted(found.keys() - expected.keys() - ignored)
    faults += [f"unexpected {name} {list(found[name])}" for name in surplus if not name.endswith("rotary_emb.inv_freq")]
    both = sorted(name for name in expected.keys() & found.keys() if expected[name] != found[name])
    faults += [f"{name}: expected {list(expected[name])}, got {list(found[name])}" for name in both]
    if faults:
        raise WeightsError(f"{len(faults)} tensors do not fit config.json: " + "; ".join(faults))


class _Reader:
    """Reads blocks one under the other into one tensor."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], source: TensorSource, placement: Placement) -> None:
        self._shapes = shapes
        self._source = source
        self.placement = placement

    def fused(self, *blocks: tuple[str, range | None], columns: range | None = None) -> torch.Tensor:
        """blocks: (tensor, its rows or None for all)."""
        rows = [range(self._shapes[name][0]) if part is None else part for name, part in blocks]
        shape = self._shapes[blocks[0][0]]
        width = () if len(shape) == 1 else (shape[1] if columns is None else len(columns),)
        target = self.placement.empty(sum(map(len, rows)), *width)
        self.fill(target, blocks, rows, columns)
        return target

    def fill(self, target: torch.Tensor, blocks: tuple[tuple[str, Any], ...], rows: list[range], columns: range | None) -> None:
        """Blocks one under the other, from the top of target."""
        start = 0
        for (name, _), part in zip(blocks, rows, strict=True):
            self._source.read(name, self._shapes[name], part, columns, target[start : start + len(part)])
            start += len(part)


def _vocabulary_rows(reader: _Reader, name: str, shard: Shard) -> torch.Tensor:
    if len(shard.vocabulary) == shard.vocabulary_rows:
        return reader.fused((name, shard.vocabulary))
    part = reader.fused((name, shard.vocabulary))
    padded = reader.placement.empty(shard.vocabulary_rows, part.shape[1]).zero_()
    padded[: part.shape[0]] = part
    return padded


def _load_layer(
    reader: _Reader, prefix: str, config: ModelConfig, shard: Shard, pack: Callable[[torch.Tensor], Any]
) -> LayerWeights:
    queries = range(shard.heads.start * config.head_dim, shard.heads.stop * config.head_dim)
    keys = range(shard.kv_heads.start * config.head_dim, shard.kv_heads.stop * config.head_dim)
    attention, ffn = prefix + "self_attn.", prefix + "mlp."

    def qkv(kind: str) -> torch.Tensor:
        parts = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))
        return reader.fused(*((f"{attention}{name}.{kind}", rows) for name, rows in parts))

    return LayerWeights(
        attention_norm=reader.fused((prefix + "input_layernorm.weight", None)),
        qkv=pack(qkv("weight")),
        qkv_bias=qkv("bias") if config.qkv_bias else None,
        q_norm=reader.fused((attention + "q_norm.weight", None)) if config.qk_norm else None,
        k_norm=reader.fused((attention + "k_norm.weight", None)) if config.qk_norm else None,
        output=pack(reader.fused((attention + "o_proj.weight", None), columns=queries)),
        output_bias=reader.fused((attention + "o_proj.bias", None)) if config.output_bias and shard.rank == 0 else None,
        ffn_norm=reader.fused((prefix + "post_attention_layernorm.weight", None)),
        gate_up=pack(reader.fused((ffn + "gate_proj.weight", shard.ffn), (ffn + "up_proj.weight", shard.ffn))),
        down=pack(reader.fused((ffn + "down_proj.weight", None), columns=shard.ffn)),
    )
