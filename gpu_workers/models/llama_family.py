"""The dense decoders of the Llama line in one file: Llama 2 and 3, Mistral, SmolLM2, Qwen2, Qwen3.

One step: tokens in, hidden states of the sampled tokens out. Ranks are hidden behind `TensorGroup`, devices behind `Ops`
and `Attention`; what is left here is the architecture.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.attention import Attention
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.shard import Shard
from gpu_workers.layers.sharded_layers import embed_tokens, gather_logits
from gpu_workers.layers.tensor_group import TensorGroup
from gpu_workers.layers.torch_ops import KvTarget, Ops, cos_sin_table
from gpu_workers.model_store.model_config import ModelConfig, RopeScaling
from gpu_workers.models.weights import LayerWeights, ModelWeights


class LlamaFamily:
    """One rank's part of a model on one device. Not thread-safe; one step at a time."""

    def __init__(
        self, config: ModelConfig, shard: Shard, weights: ModelWeights, ops: Ops, attention: Attention, group: TensorGroup
    ) -> None:
        self.config = config
        self.shard = shard
        self.attention = attention
        self.ops = ops
        self.group = group
        self.dtype = weights.norm.dtype
        self.device = weights.norm.device
        self._embedding = weights.embedding
        self._layers = weights.layers
        self._norm = weights.norm
        self._head = weights.head
        self._cos_sin = cos_sin_table(inverse_frequencies(config).to(self.device), config.max_position)
        self._scale = config.head_dim**-0.5

    def with_back_ends(self, ops: Ops, attention: Attention) -> LlamaFamily:
        """The same model, on the same weights as `ops` packed them, computed otherwise."""
        other = copy.copy(self)
        other.ops, other.attention = ops, attention
        return other

    @property
    def kv_shape(self) -> KvShape:
        """What KvPages must be allocated with."""
        return KvShape(self.config.n_layers, len(self.shard.kv_heads), self.config.head_dim, self.dtype)

    @torch.inference_mode()
    def forward(self, step: StepTensors, kv: KvPages, plan: Any = None) -> torch.Tensor:
        """Runs the layers, writes keys and values of all T tokens, returns the hidden states [S, hidden] of the sampled
        tokens, already normed. `plan` is `attention.prepare(step)`, made here when it is None."""
        plan = self.attention.prepare(step) if plan is None else plan
        residual = embed_tokens(step.token_ids, self._embedding, self.shard, self.group, self.ops)
        x, eps, ops = None, self.config.rms_eps, self.ops
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            qkv, residual = ops.norm_linear(x, residual, layer.attention_norm, eps, layer.qkv, layer.qkv_bias)
            attended = self._attend(layer, qkv, step, kv.keys[index], kv.values[index], plan)
            if index == last and step.sample_index is not None:
                # nothing behind the last keys and values is needed of tokens that are not sampled
                attended, residual = attended[step.sample_index], residual[step.sample_index]
            x = self.group.all_reduce(ops.linear(attended, layer.output, layer.output_bias))
            gated, residual = ops.norm_gated(x, residual, layer.ffn_norm, eps, layer.gate_up)
            x = self.group.all_reduce(ops.linear(gated, layer.down, None))
        assert x is not None, "a model has layers"
        return ops.add_rms_norm(x, residual, self._norm, eps)[0]

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [S, hidden] from `forward` -> [S, vocabulary] of the model's dtype, the same on all ranks."""
        return gather_logits(self.ops.linear(hidden, self._head, None), self.config, self.group)

    def _attend(
        self,
        layer: LayerWeights,
        qkv: torch.Tensor,
        step: StepTensors,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        plan: Any,
    ) -> torch.Tensor:
        """qkv [T, (heads + 2 kv heads) * head_dim] -> [T, heads * head_dim]."""
        n_heads, n_kv_heads = len(self.shard.heads), len(self.shard.kv_heads)
        q, k, v = qkv.view(qkv.shape[0], -1, self.config.head_dim).split((n_heads, n_kv_heads, n_kv_heads), 1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = self.ops.rms_norm(q, layer.q_norm, self.config.rms_eps)
            k = self.ops.rms_norm(k, layer.k_norm, self.config.rms_eps)
        q = self.ops.rope_and_store(q, k, v, KvTarget(step.positions, self._cos_sin, k_pages, v_pages, step.kv_slots))
        return self.attention.attend(q, k_pages, v_pages, plan, self._scale).flatten(1)


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """Angle per position of each pair of a head, [head_dim / 2] float32."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    return _scale_by_wavelength(frequencies, scaling) if scaling.kind == "llama3" else frequencies


def _scale_by_wavelength(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, those between blended."""
    turns = scaling.original_max_position * frequencies / (2 * math.pi)  # of a wave within the original context
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)
