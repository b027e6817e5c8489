"""Names, shapes and split of the tensors of a Gemma 3 checkpoint, and the fused tensors that one rank computes with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gpu_workers.layers.shard import Shard
from gpu_workers.models.decoder import DecoderWeights, Shape, decoder_shapes, load_decoder
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.weights import Block, WeightReader
from gpu_workers.pipeline.stage import Stage


@dataclass(frozen=True)
class Gemma3LayerWeights:
    """One layer on one rank. Linear weights, [out, in], are as `Ops.pack_linear` made them. Norms are 1 + the checkpoint's
    weight, in float32: beside the 1 a small weight would be lost in 16 bits."""

    attention_norm: torch.Tensor  # [hidden] float32
    qkv: Any  # [(heads + 2 kv_heads) * head_dim, hidden]
    q_norm: torch.Tensor  # [head_dim] float32
    k_norm: torch.Tensor  # [head_dim] float32
    output: Any  # [hidden, heads * head_dim]
    post_attention_norm: torch.Tensor  # [hidden] float32
    ffn_norm: torch.Tensor  # [hidden] float32
    gate_up: Any  # [2 * ffn, hidden]
    down: Any  # [hidden, ffn]
    post_ffn_norm: torch.Tensor  # [hidden] float32


def tensor_shapes(config: Gemma3Config) -> dict[str, Shape]:
    """Name and shape of each tensor of the whole model."""
    hidden, ffn, head_dim = config.hidden, config.ffn, config.head_dim
    queries, keys = config.n_heads * head_dim, config.n_kv_heads * head_dim
    layer: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.q_norm.weight": (head_dim,),
        "self_attn.k_norm.weight": (head_dim,),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "pre_feedforward_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
        "post_feedforward_layernorm.weight": (hidden,),
    }
    return decoder_shapes(config, layer)


def load_weights(
    config: Gemma3Config,
    shard: Shard,
    reader: WeightReader,
    on_progress: Callable[[float], None],
    stage: Stage | None = None,
) -> DecoderWeights[Gemma3LayerWeights]:
    """Reads the rank's part of every tensor, of its stage's layers if it has a stage. reader: of `tensor_shapes(config)`;
    on_progress gets 0 .. 1."""

    def load_layer(prefix: str) -> Gemma3LayerWeights:
        return _load_layer(reader, prefix, config, shard)

    return load_decoder(config, shard, reader, load_layer, on_progress, _add_one, stage)


def _load_layer(reader: WeightReader, prefix: str, config: Gemma3Config, shard: Shard) -> Gemma3LayerWeights:
    head_dim, attention, mlp = config.head_dim, prefix + "self_attn.", prefix + "mlp."
    queries = range(shard.heads.start * head_dim, shard.heads.stop * head_dim)
    keys = range(shard.kv_heads.start * head_dim, shard.kv_heads.stop * head_dim)

    def norm(name: str) -> torch.Tensor:
        return reader.read(Block(f"{prefix}{name}.weight"), _add_one)

    qkv = [Block(f"{attention}{name}.weight", rows) for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys))]
    return Gemma3LayerWeights(
        attention_norm=norm("input_layernorm"),
        qkv=reader.read_linear(*qkv),
        q_norm=norm("self_attn.q_norm"),
        k_norm=norm("self_attn.k_norm"),
        output=reader.read_linear(Block(attention + "o_proj.weight"), columns=queries),
        post_attention_norm=norm("post_attention_layernorm"),
        ffn_norm=norm("pre_feedforward_layernorm"),
        gate_up=reader.read_linear(*(Block(f"{mlp}{name}.weight", shard.ffn) for name in ("gate_proj", "up_proj"))),
        down=reader.read_linear(Block(mlp + "down_proj.weight"), columns=shard.ffn),
        post_ffn_norm=norm("post_feedforward_layernorm"),
    )


def _add_one(weight: torch.Tensor) -> torch.Tensor:
    return weight.float() + 1.0
