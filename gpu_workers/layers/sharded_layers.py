"""The layers that need the other ranks of a tensor-parallel group: one sum per attention and one per feed-forward, as in
Megatron-LM (Shoeybi et al., 2019). `shard.py` says which part of each weight a rank holds. No architecture knows of ranks.
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
    foreign = (rows < 0) | (rows >= len(shard.vocabulary))
    own = ops.embed(rows.masked_fill(foreign, 0), weight)
    return group.all_reduce(own.masked_fill_(foreign[:, None], 0))


def gather_logits(logits: torch.Tensor, vocabulary: int, group: TensorGroup) -> torch.Tensor:
    """logits [S, vocabulary_rows] of this rank -> [S, vocabulary], the same on all ranks."""
    return group.all_gather_last(logits)[:, :vocabulary]
