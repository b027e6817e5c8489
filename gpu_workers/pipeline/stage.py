"""Which layers a stage of a pipeline holds. No torch here: the supervisor plans with it.

A gang has `tp * pp` ranks. Rank r is tensor-parallel rank r % tp of stage r // tp. The first stage holds the embedding, the
last one the final norm and the head, and it samples. The pipeline is as fast as its slowest stage, so the head counts as the
layers that take as long: the last stage has fewer layers where the vocabulary is large.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.layers.shard import Shard, rank_parameters, table_parameters
from gpu_workers.model_store.model_config import ModelConfig


@dataclass(frozen=True)
class Stage:
    """Stage `index` of `size`, and its layers of the whole model."""

    index: int
    size: int
    layers: range

    @property
    def is_first(self) -> bool:
        """True for the stage that has the embedding."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """True for the stage that has the head, and samples."""
        return self.index == self.size - 1


def split_layers(config: ModelConfig, size: int) -> list[range]:
    """The layers of each of `size` stages, in order; each has one at least. The slowest stage is as fast as possible; of
    equally fast splits, one with as few layers as possible in any stage, because each layer has keys and values.

    Raises: ValueError for fewer layers than stages."""
    n_layers = config.n_layers
    if not 1 <= size <= n_layers:
        raise ValueError(f"pipeline parallel size: expected 1 .. {n_layers} (the number of layers), got {size}")
    head_layers = config.vocabulary * config.hidden * n_layers / config.layer_parameters if config.has_head else 0.0

    def cost(n_last: int) -> tuple[float, int, int]:
        most_before = -(-(n_layers - n_last) // (size - 1))
        return max(most_before, n_last + head_layers), max(most_before, n_last), -n_last

    n_last = min(range(1, n_layers - size + 2), key=cost) if size > 1 else n_layers
    counts = [*_even(n_layers - n_last, size - 1), n_last]
    ends = [sum(counts[: index + 1]) for index in range(size)]
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


def stage_of(config: ModelConfig, index: int, size: int) -> Stage:
    """Stage `index` of `size`. Raises: ValueError for fewer layers than stages."""
    return Stage(index, size, split_layers(config, size)[index])


def stage_parameters(config: ModelConfig, stage: Stage, shard: Shard) -> int:
    """Number of parameters that one rank of a stage holds: `shard` of its layers, and of the tables that the stage needs."""
    table = table_parameters(config, shard)
    n_tables = stage.is_first + stage.is_last
    if config.tied_embeddings and stage.size == 1:
        n_tables = 1
    whole_tables = 1 if config.tied_embeddings else 2
    layers = rank_parameters(config, shard) - whole_tables * table - config.hidden
    return layers // config.n_layers * len(stage.layers) + n_tables * table + config.hidden


def _even(total: int, size: int) -> list[int]:
    """Numbers that differ by at most one and add up to `total`, the greater ones first; [] for no part."""
    return [total // size + (index < total % size) for index in range(size)] if size else []
