"""Which part of each weight a rank of a tensor-parallel group holds. No torch here: the supervisor plans with it.

Heads are split at KV heads, unevenly where they do not divide. With more ranks than KV heads each KV head is held by several
ranks, which share its query heads. Splits of columns and rows follow Megatron-LM (Shoeybi et al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

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
    vocabulary_rows: int  # the longest range of all ranks, so that logits gather evenly; missing rows are zeros

    @property
    def shared_heads(self) -> int:
        """Query heads of each KV head on this rank."""
        return len(self.heads) // len(self.kv_heads)


def can_split(config: ModelConfig, size: int) -> bool:
    """True if the heads and the feed-forward width can be split over `size` ranks."""
    if not 1 <= size <= config.ffn:
        return False
    copies, rest = divmod(size, config.n_kv_heads)  # ranks that hold the same KV head
    return size <= config.n_kv_heads or (rest == 0 and config.n_heads // config.n_kv_heads % copies == 0)


def split_sizes(config: ModelConfig) -> tuple[int, ...]:
    """All numbers of ranks that the model can be split over, ascending."""
    return tuple(size for size in range(1, config.n_heads + 1) if can_split(config, size))


def is_even_split(config: ModelConfig, size: int) -> bool:
    """True if every rank gets the same number of heads. In an uneven split every step takes as long as on
    the fullest rank."""
    return can_split(config, size) and (size > config.n_kv_heads or config.n_kv_heads % size == 0)


def shard_model(config: ModelConfig, rank: int, size: int) -> Shard:
    """The part of one rank. Raises ValueError when the heads cannot be split over `size` ranks."""
    shared = config.n_heads // config.n_kv_heads
    if not can_split(config, size):
        sizes = ", ".join(map(str, split_sizes(config)))
        raise ValueError(f"tensor parallel size: expected one of {sizes}, got {size}")
    if size <= config.n_kv_heads:
        kv_heads = _part(config.n_kv_heads, rank, size)
        heads = range(kv_heads.start * shared, kv_heads.stop * shared)
    else:
        copies = size // config.n_kv_heads
        kv_heads = range(rank // copies, rank // copies + 1)
        heads = _part(config.n_heads, rank, size)
    rows = -(-config.vocabulary // size)
    vocabulary = range(min(rank * rows, config.vocabulary), min((rank + 1) * rows, config.vocabulary))
    return Shard(rank, size, heads, kv_heads, _part(config.ffn, rank, size), vocabulary, rows)


def _part(total: int, rank: int, size: int) -> range:
    """Part `rank` of range(total) cut into `size` parts, whose lengths differ by at most one, the longer ones first."""
    least, longer = divmod(total, size)
    start = rank * least + min(rank, longer)
    return range(start, start + least + (rank < longer))


def rank_parameters(config: ModelConfig, shard: Shard) -> int:
    """Number of parameters that one rank holds."""
    small = config.small_layer_parameters(len(shard.heads), len(shard.kv_heads), shard.rank == 0)
    table = 0 if config.tied_embeddings else table_parameters(config, shard)
    return linear_parameters(config, shard) + config.n_layers * small + config.hidden + table


def linear_parameters(config: ModelConfig, shard: Shard) -> int:
    """Those of them that linear layers multiply with, the head's included."""
    queries, keys = len(shard.heads) * config.head_dim, len(shard.kv_heads) * config.head_dim
    projections = config.hidden * (2 * (queries + keys) + 3 * len(shard.ffn))
    return config.n_layers * projections + table_parameters(config, shard)


def table_parameters(config: ModelConfig, shard: Shard) -> int:
    """Parameters of the rank's table of embeddings; its head has as many."""
    return shard.vocabulary_rows * config.hidden
