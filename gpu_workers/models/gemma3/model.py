"""The forward pass of a Gemma 3 text model. One step: tokens in, hidden states of the sampled tokens out.

Differences from Llama's layer: a norm before and after attention and feed-forward, normed queries and keys, a GELU gate, scaled
embeddings, and two kinds of layers with a rope each: global ones, and ones that see a window of tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.attention import AttentionStep
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.rotary import rotary_table
from gpu_workers.layers.torch_ops import KvTarget
from gpu_workers.models.decoder import Decoder, DecoderWeights
from gpu_workers.models.gemma3.config import Gemma3Config
from gpu_workers.models.gemma3.weights import Gemma3LayerWeights, load_weights, tensor_shapes
from gpu_workers.models.model import RankParts
from gpu_workers.models.weights import TensorSource, WeightPlacement, WeightReader


class Gemma3Model(Decoder[Gemma3Config, Gemma3LayerWeights]):
    """One rank's part of a Gemma 3 text model; see Model."""

    def __init__(self, config: Gemma3Config, parts: RankParts, weights: DecoderWeights[Gemma3LayerWeights]) -> None:
        """weights: as `parts.ops` packed them."""
        super().__init__(config, parts, weights)
        ropes = (config.rope, config.sliding_rope)
        self._cos_sin = [rotary_table(rope, config.head_dim, config.max_position, self.device) for rope in ropes]
        stages = parts.stages
        own = range(config.n_layers) if stages is None else stages.stage.layers
        self._is_sliding = config.is_sliding[own.start : own.stop]
        self._scale = config.query_scalar**-0.5
        self._embedding_scale = torch.tensor(config.hidden**0.5, dtype=weights.embedding.dtype).item()  # rounded, as trained

    @torch.inference_mode()
    def forward(self, step: StepTensors, kv: KvPages) -> torch.Tensor:
        """Runs the layers on the T tokens of a step, and writes their keys and values to `kv`, pages of `kv_shape`.

        Returns the hidden states [S, hidden] of the sampled tokens after the final norm, in the model's dtype on its device,
        the same on all ranks."""
        ops, group, eps = self._parts.ops, self._parts.group, self._config.rms_eps
        prepare, window = self._parts.attention.prepare, self._config.attention_window
        full = prepare(step)
        by_kind = (full, full if window is None else prepare(step, window))
        x, residual = self._enter(step)
        first_norm = self._weights.layers[0].attention_norm
        if x is None:
            residual = residual * self._embedding_scale
            normed = ops.rms_norm(residual, first_norm, eps)
        else:
            normed, residual = ops.add_rms_norm(x, residual, first_norm, eps)
        norms_after = [*(layer.attention_norm for layer in self._weights.layers[1:]), self._weights.norm]
        last, is_sliding = len(self._weights.layers) - 1, self._is_sliding
        for index, (layer, norm_after) in enumerate(zip(self._weights.layers, norms_after, strict=True)):
            attended = self._attend(layer, normed, step, kv, index, by_kind[is_sliding[index]])
            if index == last and self._parts.is_last_stage and step.sample_index is not None:
                # the keys and values of all tokens are written; only the sampled tokens are needed from here on
                attended, residual = attended[step.sample_index], residual[step.sample_index]
            x = ops.rms_norm(group.all_reduce(ops.linear(attended, layer.output, None)), layer.post_attention_norm, eps)
            normed, residual = ops.add_rms_norm(x, residual, layer.ffn_norm, eps)
            gated = ops.gelu_mul(ops.linear(normed, layer.gate_up, None))
            x = ops.rms_norm(group.all_reduce(ops.linear(gated, layer.down, None)), layer.post_ffn_norm, eps)
            if index == last and self._send_on(x, residual):
                break
            normed, residual = ops.add_rms_norm(x, residual, norm_after, eps)
        return normed

    def _attend(
        self,
        layer: Gemma3LayerWeights,
        normed: torch.Tensor,
        step: StepTensors,
        kv: KvPages,
        index: int,
        attention: AttentionStep,
    ) -> torch.Tensor:
        """normed [T, hidden] -> [T, heads * head_dim]."""
        ops, eps = self._parts.ops, self._config.rms_eps
        q, k, v = self._split_heads(ops.linear(normed, layer.qkv, None))
        q, k = ops.rms_norm(q, layer.q_norm, eps), ops.rms_norm(k, layer.k_norm, eps)
        k_pages, v_pages = kv.keys[index], kv.values[index]
        cos_sin = self._cos_sin[self._is_sliding[index]]
        q = ops.rope_and_store(q, k, v, KvTarget(step.positions, cos_sin, k_pages, v_pages, step.slot_mapping))
        return attention.attend(q, k_pages, v_pages, self._scale).flatten(1)


def load_gemma3(
    config: Gemma3Config,
    parts: RankParts,
    source: TensorSource,
    placement: WeightPlacement,
    on_progress: Callable[[float], None],
) -> Gemma3Model:
    """Reads the rank's weights; see `registry.load_model`."""
    reader = WeightReader(tensor_shapes(config), source, placement, parts.ops)
    stage = parts.stages.stage if parts.stages is not None else None
    return Gemma3Model(config, parts, load_weights(config, parts.shard, reader, on_progress, stage))
