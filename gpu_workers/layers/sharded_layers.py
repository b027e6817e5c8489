"""Which part of each weight a rank holds, and the layers that need the other ranks. No architecture knows of ranks.

Heads are split at kv heads, unevenly where they do not divide; with fewer kv heads than ranks each kv head stands on
several ranks, which share its query heads. Splits of columns and rows follow Megatron-LM (Shoeybi et al., 2019): one sum per
attention and one per feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_workers.layers.tensor_group import TensorGroup
from gpu_workers.layers.torch_ops import Ops
from gpu_workers.model_store.model_config import ModelConfig


@dataclass(frozen=True)
class Shard:
    """The part of rank `rank` of `size`: ranges over the whole model's heads, feed-forward width and vocabulary."""

    rank: int
    size: int
    heads: range
    kv_heads: range
    ffn: range
    vocabulary: range
    vocabulary_rows: int  # the same on all ranks: the longest range, so that logits gather evenly; the rest is zero rows

    @property
    def shared_heads(self) -> int:
        """Query heads on one kv head, on this rank."""
        return len(self.heads) // len(self.kv_heads)


def shard_model(config: ModelConfig, rank: int, size: int) -> Shard:
    """The part of one rank. Raises ValueError when the heads cannot be split over `size` ranks."""
    shared = config.n_heads // config.n_kv_heads
    if size <= config.n_kv_heads:
        kv_heads = _part(config.n_kv_heads, rank, size)
        heads = range(kv_heads.start * shared, kv_heads.stop * shared)
    else:
        copies, rest = divmod(size, config.n_kv_heads)
        if rest or shared % copies:
            raise ValueError(
                f"tensor parallel size: expected at most {config.n_kv_heads} (kv heads), or a multiple of it that divides"
                f" the {config.n_heads} heads, got {size}"
            )
        kv_heads = range(rank // copies, rank // copies + 1)
        heads = _part(config.n_heads, rank, size)
    if config.ffn < size:
        raise ValueError(f"tensor parallel size: expected at most {config.ffn} (intermediate_size), got {size}")
    rows = -(-config.vocabulary // size)
    vocabulary = range(min(rank * rows, config.vocabulary), min((rank + 1) * rows, config.vocabulary))
    return Shard(rank, size, heads, kv_heads, _part(config.ffn, rank, size), vocabulary, rows)


def _part(total: int, rank: int, size: int) -> range:
    """Consecutive parts that differ by at most one; the first ones are the longer ones."""
    least, longer = divmod(total, size)
    start = rank * least + min(rank, longer)
    return range(start, start + least + (rank < longer))


def embed_tokens(token_ids: torch.Tensor, weight: torch.Tensor, shard: Shard, group: TensorGroup, ops: Ops) -> torch.Tensor:
    """token_ids [T] int64; weight [>= vocabulary_rows, hidden], the rank's rows -> [T, hidden], the same on all ranks."""
    if shard.size == 1:
        return ops.embed(token_ids, weight)
    rows = token_ids - shard.vocabulary.start
    foreign = (rows < 0) | (rows >= len(shard.vocabulary))
    own = ops.embed(rows.masked_fill(foreign, 0), weight)
    return group.all_reduce(own.masked_fill_(foreign[:, None], 0))


def gather_logits(logits: torch.Tensor, config: ModelConfig, group: TensorGroup) -> torch.Tensor:
    """logits [S, vocabulary_rows] of this rank -> [S, vocabulary], the same on all ranks."""
    return group.all_gather_last(logits)[:, : config.vocabulary]
