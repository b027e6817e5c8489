"""Names, shapes and split of the tensors of a Llama checkpoint, and the fused tensors that one rank computes with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_workers.layers.shard import Shard
from gpu_workers.models.decoder import DecoderWeights, Shape, decoder_shapes, load_decoder
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.weights import Block, WeightReader
from gpu_workers.pipeline.stage import Stage


@dataclass(frozen=True)
class LlamaLayerWeights:
    """One layer on one rank. Linear weights, [out, in], are as `Ops.pack_linear` made them; biases are None where there are
    none."""

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


ModelWeights = DecoderWeights[LlamaLayerWeights]


def tensor_shapes(config: LlamaConfig) -> dict[str, Shape]:
    """Name and shape of each tensor of the whole model."""
    hidden, head_dim = config.hidden, config.head_dim
    queries, keys = config.n_heads * head_dim, config.n_kv_heads * head_dim
    qkv = _rows_of_tensors(config.names.qkv, (queries, keys, keys))
    gate_up = _rows_of_tensors(config.names.gate_up, (config.ffn, config.ffn))
    layer: dict[str, Shape] = {"input_layernorm.weight": (hidden,)}
    layer |= {f"{name}.weight": (rows, hidden) for name, rows in qkv.items()}
    layer |= {"self_attn.o_proj.weight": (hidden, queries), "post_attention_layernorm.weight": (hidden,)}
    layer |= {f"{name}.weight": (rows, hidden) for name, rows in gate_up.items()}
    layer["mlp.down_proj.weight"] = (hidden, config.ffn)
    if config.qkv_bias:
        layer |= {f"{name}.bias": (rows,) for name, rows in qkv.items()}
    if config.output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config.qk_norm:
        layer |= {"self_attn.q_norm.weight": (head_dim,), "self_attn.k_norm.weight": (head_dim,)}
    return decoder_shapes(config, layer)


def load_weights(
    config: LlamaConfig,
    shard: Shard,
    reader: WeightReader,
    on_progress: Callable[[float], None] = lambda fraction: None,
    stage: Stage | None = None,
) -> ModelWeights:
    """Reads the rank's part of every tensor, of its stage's layers if it has a stage. reader: of `tensor_shapes(config)`;
    on_progress gets 0 .. 1."""

    def load_layer(prefix: str) -> LlamaLayerWeights:
        return _load_layer(reader, prefix, config, shard)

    return load_decoder(config, shard, reader, load_layer, on_progress, stage=stage)


def _load_layer(reader: WeightReader, prefix: str, config: LlamaConfig, shard: Shard) -> LlamaLayerWeights:
    attention, head_dim = prefix + "self_attn.", config.head_dim
    queries = range(shard.heads.start * head_dim, shard.heads.stop * head_dim)
    keys = range(shard.kv_heads.start * head_dim, shard.kv_heads.stop * head_dim)
    sizes = (config.n_heads * head_dim, config.n_kv_heads * head_dim, config.n_kv_heads * head_dim)

    def qkv(kind: str) -> list[Block]:
        return _blocks([f"{prefix}{name}.{kind}" for name in config.names.qkv], sizes, (queries, keys, keys))

    gate_up = [f"{prefix}{name}.weight" for name in config.names.gate_up]
    return LlamaLayerWeights(
        attention_norm=reader.read(Block(prefix + "input_layernorm.weight")),
        qkv=reader.read_linear(*qkv("weight")),
        qkv_bias=reader.read_all(*qkv("bias")) if config.qkv_bias else None,
        q_norm=reader.read(Block(attention + "q_norm.weight")) if config.qk_norm else None,
        k_norm=reader.read(Block(attention + "k_norm.weight")) if config.qk_norm else None,
        output=reader.read_linear(Block(attention + "o_proj.weight"), columns=queries),
        output_bias=reader.read(Block(attention + "o_proj.bias")) if config.output_bias and shard.rank == 0 else None,
        ffn_norm=reader.read(Block(prefix + "post_attention_layernorm.weight")),
        gate_up=reader.read_linear(*_blocks(gate_up, (config.ffn,) * 2, (shard.ffn,) * 2)),
        down=reader.read_linear(Block(prefix + "mlp.down_proj.weight"), columns=shard.ffn),
    )


def _rows_of_tensors(names: Sequence[str], sizes: Sequence[int]) -> dict[str, int]:
    """Rows of each tensor; names[i] holds projection i, of sizes[i] rows."""
    rows = dict.fromkeys(names, 0)
    for name, size in zip(names, sizes, strict=True):
        rows[name] += size
    return rows


def _blocks(names: Sequence[str], sizes: Sequence[int], parts: Sequence[range]) -> list[Block]:
    """Where the rank's rows parts[i] of projection i are: after the projections before it that the same tensor holds."""
    blocks = []
    for i, (name, part) in enumerate(zip(names, parts, strict=True)):
        first = sum(size for other, size in zip(names[:i], sizes, strict=False) if other == name)
        blocks.append(Block(name, range(first + part.start, first + part.stop)))
    return blocks
