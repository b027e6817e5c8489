"""Estimates the memory that a rank needs from the model's configuration alone, before anything is loaded.

The supervisor plans with it, so nothing here imports torch or numpy. After the weights are loaded the rank measures instead;
see `rank_device.py`. The estimate is conservative: a plan that fits here fits on the device.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpu_workers.cuda.capability import is_flash_installed
from gpu_workers.layers.shard import Shard, linear_parameters, shard_model, table_parameters
from gpu_workers.layers.vector_bytes import scaled_vector_bytes, small_vector_bytes
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.quantized.form import Numbers
from gpu_workers.pipeline.stage import Stage, stage_of, stage_parameters
from gpu_workers.runner.floats_share import floats_share
from gpu_workers.settings import KvDtype, Quantization
from messages.steps import PAGE_TOKENS

GIB = 1 << 30
CUDA_RESERVE_BYTES = GIB  # graphs, collectives, fragments
_CUDA_CONTEXT_BYTES = 3 * GIB // 4  # the driver's context, loaded kernels, libraries' workspaces
_MOST_CPU_KV_BYTES = 2 * GIB
_CPU_KV_SHARE = 8  # by default, one part in eight of the machine's memory is for keys and values
FP8_WEIGHT_BYTES = 1.01  # of a number, with its part of a scale; see `cuda.fp8_weights`
INT8_WEIGHT_BYTES = 1 + 2 / 32  # of an integer, with its part of a scale; see `cpu.kernels.int8_weights`
INT4_WEIGHT_BYTES = (4 + 16) / 32  # with its part of a step and a least number; see `cpu.kernels.int4_weights`
_MOST_WIDENED_BYTES = GIB // 2
_LEAST_WIDENED_TOKENS = 65_536  # for the prompts of one step together
_WIDENED_BLOCK = 64
_BYTES_BY_DTYPE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class RankEstimate:
    """Bytes on the fullest rank of a group."""

    weight_bytes: int
    working_bytes: int  # activations, sampling, context and reserve: all but weights, keys and values
    kv_token_bytes: int  # keys and values of one token in all layers

    def gangs_bytes(self, n_gangs: int, shares_weights: bool) -> int:
        """All but keys and values of so many gangs on one device. shares_weights: all of them use the same weights."""
        n_weights = 1 if shares_weights else n_gangs
        return n_weights * self.weight_bytes + n_gangs * self.working_bytes

    def room_tokens(self, usable_bytes: int, n_gangs: int = 1, shares_weights: bool = False) -> int:
        """Tokens whose keys and values fit into `usable_bytes` beside everything else; negative when even that does not fit.

        n_gangs: gangs on the same device, which share keys and values; shares_weights: see `gangs_bytes`."""
        return (usable_bytes - self.gangs_bytes(n_gangs, shares_weights)) // self.kv_token_bytes


def estimate_cuda_rank(
    config: ModelConfig,
    tp: int,
    dtype: str,
    step_tokens: int,
    n_slots: int,
    quantization: Quantization = "none",
    kv_dtype: KvDtype = "auto",
    pp: int = 1,
) -> RankEstimate:
    """The estimate for the fullest of `tp` ranks in each of `pp` stages: its weights and its pages may be those of different
    stages. step_tokens: tokens of the largest step; n_slots: sequences at once."""
    shard, itemsize = shard_model(config, 0, tp), _BYTES_BY_DTYPE[dtype]
    activation_columns = 6 * config.hidden + 3 * len(shard.ffn)
    activation_columns += 2 * config.head_dim * (len(shard.heads) + 2 * len(shard.kv_heads))
    working_bytes = step_tokens * activation_columns * itemsize + sampling_bytes(n_slots, config.vocabulary)
    if kv_dtype != "auto" or is_flash_installed():
        working_bytes += widened_tokens(config, len(shard.kv_heads)) * _widened_token_bytes(config, len(shard.kv_heads))
    return RankEstimate(
        weight_bytes=max(_rank_weight_bytes(config, stage, shard, dtype, quantization) for stage in _stages(config, pp)),
        working_bytes=working_bytes + CUDA_RESERVE_BYTES + _CUDA_CONTEXT_BYTES,
        kv_token_bytes=kv_token_bytes(config, tp, dtype, kv_dtype, pp),
    )


def kv_token_bytes(config: ModelConfig, tp: int, dtype: str, kv_dtype: KvDtype = "auto", pp: int = 1) -> int:
    """Bytes of keys and values of one token, in all layers of the fullest of `tp` ranks in each of `pp` stages."""
    n_pairs = max(len(stage.layers) for stage in _stages(config, pp)) * len(shard_model(config, 0, tp).kv_heads)
    return n_pairs * _pair_bytes(config.head_dim, _BYTES_BY_DTYPE[dtype], kv_dtype)


def widened_tokens(config: ModelConfig, n_kv_heads: int) -> int:
    """Tokens whose keys and values of one layer, n_kv_heads on this rank, a GPU has memory to widen at once where its pages
    hold 8-bit numbers, or to copy for FlashAttention: those of the longest sequence, or of several long prompts, but at most
    512 MiB; a whole number of blocks. See `cuda.kernels.attention.widened_keys`."""
    wanted = max(config.max_position, _LEAST_WIDENED_TOKENS)
    most = _MOST_WIDENED_BYTES // _widened_token_bytes(config, n_kv_heads)
    return min(wanted, most) // _WIDENED_BLOCK * _WIDENED_BLOCK


def _widened_token_bytes(config: ModelConfig, n_kv_heads: int) -> int:
    return 2 * n_kv_heads * config.head_dim * _BYTES_BY_DTYPE["float16"]


def _pair_bytes(head_dim: int, itemsize: int, kv_dtype: KvDtype) -> int:
    """Bytes of one head's key and value of one token, with their scales where they have some; see `layers.page_format`."""
    if kv_dtype == "int4":
        return sum(small_vector_bytes(head_dim))
    return 2 * head_dim * itemsize if kv_dtype == "auto" else sum(scaled_vector_bytes(head_dim))


def cpu_weight_bytes(config: ModelConfig, tp: int, dtype: str, quantization: Quantization = "none", pp: int = 1) -> int:
    """Bytes of the weights of all ranks of one replica, which share the machine's memory."""
    shards = [shard_model(config, rank, tp) for rank in range(tp)]
    ranks = ((stage, shard) for stage in _stages(config, pp) for shard in shards)
    return sum(_rank_weight_bytes(config, stage, shard, dtype, quantization) for stage, shard in ranks)


def _stages(config: ModelConfig, pp: int) -> list[Stage]:
    return [stage_of(config, index, pp) for index in range(pp)]


def _rank_weight_bytes(config: ModelConfig, stage: Stage, shard: Shard, dtype: str, quantization: Quantization) -> int:
    """With integers the table of embeddings keeps its dtype, also where it is the head: that is packed from it, in 8 bits. With
    fp8 table and head keep it. With exact the head may keep it, as files often have it in a type of its own."""
    n_parameters, itemsize = stage_parameters(config, stage, shard), _BYTES_BY_DTYPE[dtype]
    if quantization == "none":
        return n_parameters * itemsize
    n_table = table_parameters(config, shard)
    n_layers = (linear_parameters(config, shard) - n_table) // config.n_layers * len(stage.layers)
    n_head = n_table if stage.is_last else 0
    n_linear = n_layers + n_head
    if quantization == "fp8":
        n_small = n_layers - math.ceil(n_layers * floats_share(config))
        return (n_parameters - n_small) * itemsize + math.ceil(n_small * FP8_WEIGHT_BYTES)
    n_plain = n_parameters - n_linear + (n_head if config.tied_embeddings else 0)
    has_4_bits = quantization == "int4" or (quantization == "exact" and _has_exact_4_bits(config))
    layer_bytes = INT4_WEIGHT_BYTES if has_4_bits else INT8_WEIGHT_BYTES
    if quantization != "int8":  # what the file leaves in floats gets 8 bits with int4, and stays so with exact
        share = floats_share(config)
        layer_bytes += share * ((itemsize if quantization == "exact" else INT8_WEIGHT_BYTES) - layer_bytes)
    head_bytes = itemsize if quantization == "exact" else INT8_WEIGHT_BYTES
    return n_plain * itemsize + math.ceil(n_layers * layer_bytes + n_head * head_bytes)


def _has_exact_4_bits(config: ModelConfig) -> bool:
    """Do the file's own integers fit 4 bits? With zeros of its own, the product of zero and scale needs more digits than a
    least number has, so 8 bits are taken."""
    stored = config.quantized
    return config.stored_as == "Q4_1" or (stored is not None and stored.numbers is Numbers.INT4 and not stored.has_zeros)


def default_cpu_kv_bytes(host_bytes: int) -> int:
    """Bytes for keys and values of one rank on CPU cores of a host with so much memory: an eighth of it, at most 2 GiB."""
    return min(_MOST_CPU_KV_BYTES, host_bytes // _CPU_KV_SHARE)


def sampling_bytes(n_slots: int, vocabulary: int) -> int:
    """Bytes of the float32 and float64 copies of the logits that sampling makes for `n_slots` sequences, and of the counts of
    their tokens."""
    return n_slots * vocabulary * 4 * 7


def slot_bytes(max_length: int) -> int:
    """Bytes of the tables of one sequence of at most `max_length` tokens on a device: the ids of its tokens and its pages."""
    return 4 * (max_length + 1 + -(-max_length // PAGE_TOKENS))


def memory_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory that this process may use: the machine's, or its container's where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup v2, then v1
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int((cgroup / name).read_text()))
    return min(limits)
