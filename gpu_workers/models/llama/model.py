"""The forward pass of a Llama decoder. One step: tokens in, hidden states of the sampled tokens out."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.attention import AttentionStep
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.rotary import rotary_table
from gpu_workers.layers.torch_ops import KvTarget
from gpu_workers.models.decoder import Decoder
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.llama.weights import LlamaLayerWeights, ModelWeights, load_weights, tensor_shapes
from gpu_workers.models.model import RankParts, RecordableModel
from gpu_workers.models.weights import TensorSource, WeightPlacement, WeightReader


class LlamaModel(Decoder[LlamaConfig, LlamaLayerWeights], RecordableModel):
    """One rank's part of a Llama decoder; see Model."""

    def __init__(self, config: LlamaConfig, parts: RankParts, weights: ModelWeights) -> None:
        """weights: as `parts.ops` packed them."""
        super().__init__(config, parts, weights)
        self._cos_sin = rotary_table(config.rope, config.head_dim, config.max_position, self.device)
        self._scale = config.head_dim**-0.5

    def with_parts(self, parts: RankParts) -> LlamaModel:
        """The same model on the same weights with these parts; weights are not copied."""
        other = copy.copy(self)
        other._parts = parts
        return other

    @torch.inference_mode()
    def forward(self, step: StepTensors, kv: KvPages) -> torch.Tensor:
        """Runs the layers on the T tokens of a step, and writes their keys and values to `kv`, pages of `kv_shape`.

        Returns the hidden states [S, hidden] of the sampled tokens after the final norm, in the model's dtype on its device,
        the same on all ranks. See `Model.forward` for a stage of a pipeline."""
        ops, group, eps = self._parts.ops, self._parts.group, self._config.rms_eps
        attention = self._parts.attention.prepare(step)
        x, residual = self._enter(step)
        last = len(self._weights.layers) - 1 if self._parts.is_last_stage else None
        for index, layer in enumerate(self._weights.layers):
            qkv, residual = ops.norm_linear(x, residual, layer.attention_norm, eps, layer.qkv, layer.qkv_bias)
            attended = self._attend(layer, qkv, step, kv.keys[index], kv.values[index], attention)
            if index == last and step.sample_index is not None:
                # the keys and values of all tokens are written; only the sampled tokens are needed from here on
                attended, residual = attended[step.sample_index], residual[step.sample_index]
            x = group.all_reduce(ops.linear(attended, layer.output, layer.output_bias))
            x, residual = ops.feed_forward(x, residual, layer.ffn_norm, eps, layer.gate_up, layer.down)
            x = group.all_reduce(x)
        assert x is not None, "a model has layers"
        if self._send_on(x, residual):
            return x
        return ops.add_rms_norm(x, residual, self._weights.norm, eps)[0]

    def _attend(
        self,
        layer: LlamaLayerWeights,
        qkv: torch.Tensor,
        step: StepTensors,
        k_pages: torch.Tensor,
        v_pages: torch.Tensor,
        attention: AttentionStep,
    ) -> torch.Tensor:
        """qkv [T, (heads + 2 kv heads) * head_dim] -> [T, heads * head_dim]."""
        ops, eps = self._parts.ops, self._config.rms_eps
        q, k, v = self._split_heads(qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = ops.rms_norm(q, layer.q_norm, eps)
            k = ops.rms_norm(k, layer.k_norm, eps)
        target = KvTarget(step.positions, self._cos_sin, k_pages, v_pages, step.slot_mapping)
        return attention.store_and_attend(ops, q, k, v, target, self._scale).flatten(1)


def load_llama(
    config: LlamaConfig,
    parts: RankParts,
    source: TensorSource,
    placement: WeightPlacement,
    on_progress: Callable[[float], None],
) -> LlamaModel:
    """Reads the rank's weights; see `registry.load_model`."""
    reader = WeightReader(tensor_shapes(config), source, placement, parts.ops)
    stage = parts.stages.stage if parts.stages is not None else None
    return LlamaModel(config, parts, load_weights(config, parts.shard, reader, on_progress, stage))
