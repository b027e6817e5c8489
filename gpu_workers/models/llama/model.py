"""The forward pass of a Llama decoder. One step: tokens in, hidden states of the sampled tokens out."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.attention import AttentionStep
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.rotary import rotary_table
from gpu_workers.layers.sharded_layers import embed_tokens, gather_logits
from gpu_workers.layers.torch_ops import KvTarget
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import LayerWeights, ModelWeights, load_weights, tensor_shapes
from gpu_workers.models.model import RankParts, RecordableModel
from gpu_workers.models.weights import Placement, TensorSource, WeightReader


class LlamaModel(RecordableModel):
    """See Model."""

    def __init__(self, config: LlamaConfig, parts: RankParts, weights: ModelWeights) -> None:
        """weights: as `parts.ops` packed them."""
        self._config, self._parts, self._weights = config, parts, weights
        self._dtype, self._device = weights.norm.dtype, weights.norm.device
        self._cos_sin = rotary_table(config.rope, config.head_dim, config.max_position, self._device)
        self._scale = config.head_dim**-0.5

    @property
    def config(self) -> LlamaConfig:
        """See Model."""
        return self._config

    @property
    def parts(self) -> RankParts:
        """See Model."""
        return self._parts

    @property
    def device(self) -> torch.device:
        """See Model."""
        return self._device

    @property
    def kv_shape(self) -> KvShape:
        """See Model."""
        return KvShape(self._config.n_layers, len(self._parts.shard.kv_heads), self._config.head_dim, self._dtype)

    def with_parts(self, parts: RankParts) -> LlamaModel:
        """See RecordableModel."""
        other = copy.copy(self)
        other._parts = parts
        return other

    @torch.inference_mode()
    def forward(self, step: StepTensors, kv: KvPages) -> torch.Tensor:
        """See Model."""
        ops, group, eps = self._parts.ops, self._parts.group, self._config.rms_eps
        attention = self._parts.attention.prepare(step)
        residual = embed_tokens(step.token_ids, self._weights.embedding, self._parts.shard, group, ops)
        x = None
        last = len(self._weights.layers) - 1
        for index, layer in enumerate(self._weights.layers):
            qkv, residual = ops.norm_linear(x, residual, layer.attention_norm, eps, layer.qkv, layer.qkv_bias)
            attended = self._attend(layer, qkv, step, kv.keys[index], kv.values[index], attention)
            if index == last and step.sample_index is not None:
                # of tokens that are not sampled only the keys and values are needed, and the last ones are written
                attended, residual = attended[step.sample_index], residual[step.sample_index]
            x = group.all_reduce(ops.linear(attended, layer.output, layer.output_bias))
            gated, residual = ops.norm_gated(x, residual, layer.ffn_norm, eps, layer.gate_up)
            x = group.all_reduce(ops.linear(gated, layer.down, None))
        assert x is not None, "a model has layers"
        return ops.add_rms_norm(x, residual, self._weights.norm, eps)[0]

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """See Model."""
        own = self._parts.ops.linear(hidden, self._weights.head, None)
        return gather_logits(own, self._config.vocabulary, self._parts.group)

    def _attend(
        self,
        layer: LayerWeights,
        qkv: torch.Tensor,
        step: StepTensors,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        attention: AttentionStep,
    ) -> torch.Tensor:
        """qkv [T, (heads + 2 kv heads) * head_dim] -> [T, heads * head_dim]."""
        ops, shard, eps = self._parts.ops, self._parts.shard, self._config.rms_eps
        n_heads, n_kv_heads = len(shard.heads), len(shard.kv_heads)
        q, k, v = qkv.view(qkv.shape[0], -1, self._config.head_dim).split((n_heads, n_kv_heads, n_kv_heads), 1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = ops.rms_norm(q, layer.q_norm, eps)
            k = ops.rms_norm(k, layer.k_norm, eps)
        q = ops.rope_and_store(q, k, v, KvTarget(step.positions, self._cos_sin, k_pages, v_pages, step.kv_slots))
        return attention.attend(q, k_pages, v_pages, self._scale).flatten(1)


def load_llama(
    config: LlamaConfig,
    parts: RankParts,
    source: TensorSource,
    placement: Placement,
    on_progress: Callable[[float], None],
) -> LlamaModel:
    """Reads the rank's weights; see `registry.load_model`."""
    reader = WeightReader(tensor_shapes(config), source, placement)
    weights = load_weights(config, parts.shard, reader, parts.ops.pack_linear, on_progress)
    return LlamaModel(config, parts, weights)
