"""The protocol of a model: all that the runner, captured steps and CPU programs know of it, whatever its architecture.

An architecture is a folder. It knows how to read config.json, the names, shapes and split of its checkpoint's tensors, its
layer and its forward pass. Ranks are hidden behind `TensorGroup`, devices behind `Ops` and `Attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import torch

from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.layers.attention import Attention
from gpu_workers.layers.kv_pages import KvPages, KvShape
from gpu_workers.layers.shard import Shard
from gpu_workers.layers.tensor_group import TensorGroup
from gpu_workers.layers.torch_ops import Ops
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.pipeline.link import StageParts


@dataclass(frozen=True)
class RankParts:
    """The parts that one rank computes with: its share of the model, the operations of its device, and the other ranks."""

    shard: Shard
    ops: Ops
    attention: Attention
    group: TensorGroup
    page_dtype: torch.dtype | None = None  # of keys and values in their pages; None: the dtype of the weights
    stages: StageParts | None = None  # of a pipeline; None: the ranks of the group hold the whole model

    @property
    def is_last_stage(self) -> bool:
        """True if this rank has the head."""
        return self.stages is None or self.stages.stage.is_last


class Model(Protocol):
    """One rank's part of a model on one device. Not thread-safe; one step at a time."""

    @property
    def config(self) -> ModelConfig:
        """The config of the whole model."""
        ...

    @property
    def parts(self) -> RankParts:
        """The parts that it computes with."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of weights and activations."""
        ...

    @property
    def kv_shape(self) -> KvShape:
        """The shape that KvPages must be allocated with."""
        ...

    def forward(self, step: StepTensors, kv: KvPages) -> torch.Tensor:
        """Runs the layers on T tokens and writes their keys and values to `kv`. Returns the hidden states [S, hidden] of the
        sampled tokens after the final norm, of the model's dtype on its device, the same on all ranks of the last stage. An
        earlier stage sends its hidden states on, and what it returns has no meaning."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [S, hidden] from `forward` -> [S, vocabulary] of the model's dtype, the same on all ranks of the last stage;
        on those of an earlier one [0, vocabulary]."""
        ...


@runtime_checkable
class RecordableModel(Model, Protocol):
    """A model all of whose steps go through `Ops` and `Attention`, so that these can record a step (see `cpu_programs`)."""

    def with_parts(self, parts: RankParts) -> Self:
        """The same model on the same weights, computed with other operations and attention. These must be able to read the
        weights that the original operations packed."""
        ...
