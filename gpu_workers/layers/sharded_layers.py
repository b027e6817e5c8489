"""The embedding and the logits of a model whose vocabulary is split over the ranks of a tensor-parallel group, as in
Megatron-LM (Shoeybi et al., 2019). `shard.py` says which part of each weight a rank holds.
"""

from __future__ import annotations

import torch

from gpu_workers.layers.shard import Shard
from gpu_workers.layers.tensor_group import TensorGroup
from gpu_workers.layers.torch_ops import Ops


def embed_tokens(token_ids: torch.Tensor, weight: torch.Tensor, shard: Shard, group: TensorGroup, ops: Ops) -> torch.Tensor:
    """token_ids [T] int64; weight [>= vocabulary_rows, hidden], the rank's rows -> [T, hidden], the same on all ranks."""
    if shard.size == 1:
        return ops.embed(token_ids, weight)
    rows = token_ids - shard.vocabulary.start
    is_foreign = (rows < 0) | (rows >= len(shard.vocabulary))
    own = ops.embed(rows.masked_fill(is_foreign, 0), weight)
    return group.all_reduce(own.masked_fill_(is_foreign[:, None], 0))


def gather_logits(logits: torch.Tensor, vocabulary: int, group: TensorGroup) -> torch.Tensor:
    """logits [S, vocabulary_rows] of this rank -> [S, vocabulary], the same on all ranks."""
    return group.all_gather_last(logits)[:, :vocabulary]
