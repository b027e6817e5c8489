"""The parts that all decoders of this package share: embedding, final norm and head, with their names in a checkpoint. Each
architecture adds its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.kv_pages import KvShape
from gpu_workers.layers.shard import Shard
from gpu_workers.layers.sharded_layers import embed_tokens, gather_logits
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.weights import Block, WeightReader
from gpu_workers.pipeline.stage import Stage

Shape = tuple[int, ...]
ConfigT = TypeVar("ConfigT", bound=ModelConfig)
LayerT = TypeVar("LayerT")
_EMBEDDING, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True)
class DecoderWeights(Generic[LayerT]):
    """All weights of a rank. Tied embeddings are kept twice, plain and packed, unless `Ops.pack` returns its argument."""

    embedding: torch.Tensor  # [vocabulary_rows, hidden]; [0, hidden] on a later stage of a pipeline, if it has no tied head
    layers: tuple[LayerT, ...]  # of the rank's stage
    norm: torch.Tensor  # [hidden]
    head: Any  # [vocabulary_rows, hidden], packed; None: the model, or this stage of it, gives hidden states only


def decoder_shapes(config: ModelConfig, layer: dict[str, Shape]) -> dict[str, Shape]:
    """Name and shape of each tensor of the whole model. layer: those of one layer, whose names lack the layer's prefix."""
    shapes = {f"{layer_prefix(i)}{name}": shape for i in range(config.n_layers) for name, shape in layer.items()}
    shapes |= {_EMBEDDING: (config.vocabulary, config.hidden), _NORM: (config.hidden,)}
    is_stored = config.has_head and not config.tied_embeddings
    return shapes | {_HEAD: (config.vocabulary, config.hidden)} if is_stored else shapes


def layer_prefix(index: int) -> str:
    """The prefix of the names of a layer's tensors."""
    return f"model.layers.{index}."


def load_decoder(
    config: ModelConfig,
    shard: Shard,
    reader: WeightReader,
    load_layer: Callable[[str], LayerT],
    on_progress: Callable[[float], None],
    finish_norm: Callable[[torch.Tensor], torch.Tensor] = lambda norm: norm,
    stage: Stage | None = None,
) -> DecoderWeights[LayerT]:
    """Reads the rank's part of every tensor, in order.
    reader: of `decoder_shapes`; load_layer gets the prefix of a layer's names; on_progress gets 0 .. 1; finish_norm: what the
    norm before the head becomes; stage: of a pipeline, whose layers are read; None: the whole model."""
    is_last = stage is None or stage.is_last
    has_embedding = stage is None or stage.is_first or (is_last and config.tied_embeddings)
    embedding = reader.read_vocabulary(_EMBEDDING, shard) if has_embedding else reader.no_vocabulary(config.hidden)
    layers, indices = [], range(config.n_layers) if stage is None else stage.layers
    for index in indices:
        layers.append(load_layer(layer_prefix(index)))
        on_progress(len(layers) / len(indices))
    tied = embedding if config.tied_embeddings else None
    head = reader.read_head(_HEAD, shard, tied) if config.has_head and is_last else None
    return DecoderWeights(embedding, tuple(layers), reader.read(Block(_NORM), finish_norm), head)


class Decoder(Model, Generic[ConfigT, LayerT]):
    """A Model without `forward`, which each architecture adds."""

    def __init__(self, config: ConfigT, parts: RankParts, weights: DecoderWeights[LayerT]) -> None:
        """weights: as `parts.ops` packed them."""
        self._config, self._parts, self._weights = config, parts, weights
        self._dtype, self._device = weights.embedding.dtype, weights.embedding.device

    @property
    def config(self) -> ConfigT:
        """The config of the whole model, not of the rank's part."""
        return self._config

    @property
    def parts(self) -> RankParts:
        """The parts that it computes with."""
        return self._parts

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self._device

    @property
    def kv_shape(self) -> KvShape:
        """The shape of the rank's pages: its layers, and one kv head for each that the rank has."""
        dtype = self._parts.page_dtype or self._dtype
        return KvShape(len(self._weights.layers), len(self._parts.shard.kv_heads), self._config.head_dim, dtype)

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [S, hidden] from `forward` -> [S, vocabulary] of the model's dtype. Each rank computes those of its part of
        the vocabulary, and all ranks get all of them. An earlier stage of a pipeline computes none: [0, vocabulary]."""
        if not self._parts.is_last_stage:
            return hidden.new_empty((0, self._config.vocabulary))
        own = self._parts.ops.linear(hidden, self._weights.head, None)
        return gather_logits(own, self._config.vocabulary, self._parts.group)

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """token_ids [T] int64 -> [T, hidden], the same on all ranks. On the first stage only."""
        return embed_tokens(token_ids, self._weights.embedding, self._parts.shard, self._parts.group, self._parts.ops)

    def _send_on(self, x: torch.Tensor, residual: torch.Tensor) -> bool:
        """Send (x, residual) after the rank's last layer to the next stage. False, and nothing done, if there is none."""
        stages = self._parts.stages
        if stages is None or stages.stage.is_last:
            return False
        stages.link.send_hidden(x, residual)
        return True

    def _enter(self, step: StepTensors) -> tuple[torch.Tensor | None, torch.Tensor]:
        """(x, residual) before the rank's first layer, which adds them; x None: zeros. A later stage waits for them."""
        stages = self._parts.stages
        if stages is None or stages.stage.is_first:
            return None, self._embed(step.token_ids)
        return stages.link.receive_hidden(step.n_tokens, self._config.hidden, self._dtype)

    def _split_heads(self, qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """qkv [T, (heads + 2 kv heads) * head_dim] -> views [T, heads, head_dim] and twice [T, kv heads, head_dim]."""
        n_heads, n_kv_heads = len(self._parts.shard.heads), len(self._parts.shard.kv_heads)
        q, k, v = qkv.view(qkv.shape[0], -1, self._config.head_dim).split((n_heads, n_kv_heads, n_kv_heads), 1)
        return q, k, v
