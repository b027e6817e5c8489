"""The time of a step from the bytes that it reads, its arithmetic and the device. Pure.

A step reads the weights once, whatever the number of its rows, and the keys and values of every row; or its products take
longer than that. Beside these, each layer has kernels whose time hardly depends on the model. The shares of the peaks below
were measured on H200s (docs/performance_gpus.md, "Where the time goes", "Decode steps"); they also give the H100's steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpu_workers.layers.shard import linear_parameters, rank_parameters, shard_model, table_parameters
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import RankEstimate
from supervisor.capacity.gpu_kinds import GpuKind
from supervisor.capacity.replica_times import ReplicaTimes, TimePart, interpolated

H200_PEAK = 989e12  # 16-bit floats, dense, a second
# (tokens of a step, arithmetic of its products a second), of Llama-8B on an H200
H200_PRODUCTS = ((64, 300e12), (256, 620e12), (512, 680e12), (1024, 720e12), (2048, 755e12), (8192, 755e12))
_LAYER_S = ((0.0, 11e-6), (3.0, 18e-6), (6.0, 24e-6), (8.0, 33e-6))  # (log2 of the rows, kernels beside products)
_PAIR_FLOPS_SHARE = 0.33  # of the peak, that attention of prompts reaches
_TOKEN_LAYER_S = 40e-9  # kernels beside products of a prompt's token, in each layer
# of the ranks of a replica: one sum, and what it moves a second; for two ranks, and as much again for each doubling
_SUM_S, _SUM_BYTES_PER_S = 9e-6, 220e9
_SUMS_OF_LAYER = 2
_LONE_SHARE, _SHARED_SHARE = 0.9, 0.8  # of the bandwidth: products of one row, of several
_FULL_TOKENS = 1024  # prompts are computed in chunks of so many tokens and more where there are many
_BYTES_16 = 2


@dataclass(frozen=True)
class DeviceSpeed:
    """What one rank computes on. `product_shares`: (tokens of a step, share of `flops`). `layer_s`: see `_LAYER_S`."""

    bandwidth: float  # bytes a second
    flops: float  # a second
    product_shares: tuple[tuple[float, float], ...] = tuple((n, rate / H200_PEAK) for n, rate in H200_PRODUCTS)
    layer_s: tuple[tuple[float, float], ...] = _LAYER_S
    token_layer_s: float = _TOKEN_LAYER_S
    lone_share: float = _LONE_SHARE
    shared_share: float = _SHARED_SHARE
    pair_share: float = _PAIR_FLOPS_SHARE
    hop_s: float = 0.004  # of a first token beside the device; docs/performance_gpus.md


@dataclass(frozen=True)
class RankWork:
    """What the fullest rank of a replica does."""

    read_bytes: int  # of weights, in each step
    layer_flops: float  # for each token
    head_flops: float  # for each token that is sampled
    pair_flops: float  # of attention, for each pair of a query and a key
    kv_token_bytes: int
    n_layers: int
    hidden: int
    tp: int


def work_of(model: ModelConfig, tp: int, estimate: RankEstimate, itemsize: int) -> RankWork:
    """The work of a rank from the shape of the model. `itemsize`: bytes of a number of the table, which stays as it is where
    linear layers are quantised."""
    shard = shard_model(model, 0, tp)
    n_table = table_parameters(model, shard)
    n_plain = rank_parameters(model, shard) * itemsize
    has_own_table = not model.tied_embeddings or estimate.weight_bytes < n_plain  # quantised heads are copies
    return RankWork(
        read_bytes=max(estimate.weight_bytes - (n_table * itemsize if has_own_table else 0), 1),
        layer_flops=2.0 * (linear_parameters(model, shard) - n_table),
        head_flops=2.0 * n_table,
        pair_flops=4.0 * len(shard.heads) * model.head_dim * model.n_layers,
        kv_token_bytes=estimate.kv_token_bytes,
        n_layers=model.n_layers,
        hidden=model.hidden,
        tp=tp,
    )


@dataclass(frozen=True)
class Roofline(ReplicaTimes):
    """`ReplicaTimes` of a replica whose ranks do `work` at `speed`."""

    work: RankWork
    speed: DeviceSpeed

    @property
    def hop_s(self) -> float:
        """What a first token takes beside the device."""
        return self.speed.hop_s

    def step_s(self, n_sequences: float, context_tokens: float) -> float:
        """The parts of a step together."""
        return sum(self.parts(n_sequences, context_tokens).values())

    def parts(self, n_sequences: float, context_tokens: float) -> dict[TimePart, float]:
        """The longer one of weights and products, keys and values, small kernels."""
        weights_s, products_s = self.weights_s(n_sequences), self.products_s(n_sequences)
        slower = TimePart.WEIGHTS if weights_s >= products_s else TimePart.PRODUCTS
        kv_s, beside_s = self.kv_s(n_sequences, context_tokens), self._beside_s(n_sequences)
        return {slower: max(weights_s, products_s), TimePart.KEYS: kv_s, TimePart.KERNELS: beside_s}

    def weights_s(self, n_rows: float) -> float:
        """To read the weights once."""
        return self.work.read_bytes / (self.speed.bandwidth * self._share(n_rows))

    def products_s(self, n_rows: float) -> float:
        """The arithmetic of a step in which every row is sampled."""
        return n_rows * (self.work.layer_flops + self.work.head_flops) / self._flops(n_rows)

    def kv_s(self, n_rows: float, context_tokens: float) -> float:
        """To read the keys and values of the rows."""
        return n_rows * context_tokens * self.work.kv_token_bytes / (self.speed.bandwidth * self._share(n_rows))

    def prompt_s(self, n_tokens: int) -> float:
        """Products, attention and small kernels of a prompt, in chunks beside those of others."""
        products_s = n_tokens * self.work.layer_flops / self._flops(max(n_tokens, _FULL_TOKENS))
        return products_s + self._attention_s(n_tokens) + self._small_s(n_tokens)

    def lone_prompt_s(self, n_tokens: int) -> float:
        """The same in one step of its own, which reads the weights for it."""
        products_s = n_tokens * self.work.layer_flops / self._flops(n_tokens)
        whole_s = max(products_s, self.weights_s(n_tokens)) + self._beside_s(min(n_tokens, 256))
        return whole_s + self._attention_s(n_tokens) + self._small_s(n_tokens)

    def _share(self, n_rows: float) -> float:
        return self.speed.lone_share if n_rows <= 1 else self.speed.shared_share

    def _flops(self, n_rows: float) -> float:
        sizes = self.speed.product_shares
        return self.speed.flops * interpolated(sizes, min(n_rows, sizes[-1][0]))

    def _attention_s(self, n_tokens: int) -> float:
        return n_tokens * n_tokens / 2 * self.work.pair_flops / (self.speed.flops * self.speed.pair_share)

    def _small_s(self, n_tokens: int) -> float:
        return n_tokens * (self.work.n_layers * self.speed.token_layer_s + self._moved_s())

    def _moved_s(self) -> float:
        """Of the sums between ranks, for each token."""
        moved_bytes = _SUMS_OF_LAYER * self.work.n_layers * self.work.hidden * _BYTES_16
        return math.log2(self.work.tp) * moved_bytes / _SUM_BYTES_PER_S

    def _beside_s(self, n_rows: float) -> float:
        """Kernels beside products and attention, and sums of the ranks."""
        layer_s = interpolated(self.speed.layer_s, math.log2(max(n_rows, 1.0)))
        if self.work.tp > 1:
            sum_s = (1.0 + math.log2(self.work.tp)) / 2.0 * _SUM_S
            moved_s = math.log2(self.work.tp) * n_rows * self.work.hidden * _BYTES_16 / _SUM_BYTES_PER_S
            layer_s += _SUMS_OF_LAYER * (sum_s + moved_s)
        return self.work.n_layers * layer_s


def gpu_speed(kind: GpuKind) -> DeviceSpeed:
    """The speed of a GPU."""
    return DeviceSpeed(kind.bandwidth, kind.flops)


# A core with AVX-512, two of which share the memory's channel (docs/performance_cpus.md, "Two CPU cores"): what products reach
_CORE_FLOPS, _CORES_BANDWIDTH = 70e9, 27e9


def cpu_speed(n_cores: int, dtype: str) -> DeviceSpeed:
    """The speed of the cores of a host: a guess, because processors differ by more than a factor of two."""
    flops = n_cores * _CORE_FLOPS * (1 if dtype == "float32" else 2)
    everything = ((1.0, 1.0), (2.0, 1.0))
    return DeviceSpeed(
        _CORES_BANDWIDTH, flops, everything, ((0.0, 30e-6), (6.0, 60e-6)), 0.0, 1.0, 1.0, pair_share=0.5, hop_s=0.02
    )
