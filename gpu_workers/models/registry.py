"""From a model's folder to a model that runs: picks the family, reads the rank's weights, joins ops and attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog
import torch

from gpu_workers.cpu.kernels.machine import can_attend, this_machine
from gpu_workers.layers.attention import Attention, TorchAttention
from gpu_workers.layers.shard import Shard, shard_model
from gpu_workers.layers.tensor_group import SingleRank, TensorGroup
from gpu_workers.layers.torch_ops import Ops, TorchOps
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.llama_family import LlamaFamily
from gpu_workers.models.weights import Placement, RandomSource, SafetensorsSource, load_weights

FAMILIES = {"llama": LlamaFamily, "mistral": LlamaFamily, "qwen2": LlamaFamily, "qwen3": LlamaFamily}
LOAD_FORMATS = ("safetensors", "random")


def load_model(
    config: ModelConfig,
    folder: Path,
    placement: Placement,
    *,
    group: TensorGroup | None = None,
    load_format: str = "safetensors",
    seed: int = 0,
    make_ops: Callable[[], Ops] | None = None,
    make_attention: Callable[[ModelConfig, Shard, torch.dtype], Attention] | None = None,
    on_progress: Callable[[float], None] = lambda fraction: None,
) -> LlamaFamily:
    """The model of `folder` on `placement.device` in `placement.dtype`. load_format "random" needs no weight files and makes
    weights from `seed`. Without make_ops and make_attention a CPU gets its fastest ones, a GPU plain torch.

    Raises ValueError for an unknown load format or a group that the model cannot be split over, WeightsError for a
    checkpoint that does not fit."""
    if config.model_type not in FAMILIES:
        raise ValueError(f"model_type: expected one of {', '.join(FAMILIES)}, got {config.model_type!r}")
    if load_format not in LOAD_FORMATS:
        raise ValueError(f"load_format: expected one of {', '.join(LOAD_FORMATS)}, got {load_format!r}")
    group = SingleRank() if group is None else group
    shard = shard_model(config, group.rank, group.size)
    source = RandomSource(seed) if load_format == "random" else SafetensorsSource(folder)
    is_cpu = placement.device.type == "cpu"
    ops = make_ops() if make_ops is not None else cpu_ops(placement.dtype) if is_cpu else TorchOps()
    weights = load_weights(config, shard, source, placement, ops.pack_linear, on_progress)
    if make_attention is None:
        make_attention = cpu_attention if is_cpu else torch_attention
    attention = make_attention(config, shard, placement.dtype)
    return FAMILIES[config.model_type](config, shard, weights, ops, attention, group)


def torch_attention(config: ModelConfig, shard: Shard, dtype: torch.dtype) -> Attention:
    """The back end that runs everywhere."""
    return TorchAttention(dtype, shard.shared_heads, len(shard.kv_heads))


def cpu_attention(config: ModelConfig, shard: Shard, dtype: torch.dtype) -> Attention:
    """The fastest back end of this CPU: the compiled one where it can be had."""
    if can_attend(dtype, config.head_dim):
        from gpu_workers.cpu.attention import CpuAttention  # imports what only such machines have

        try:
            return CpuAttention(dtype, shard.shared_heads, len(shard.kv_heads), config.head_dim)
        except RuntimeError as error:
            _say_plain("attention", str(error))
    return torch_attention(config, shard, dtype)


def cpu_ops(dtype: torch.dtype) -> Ops:
    """The fastest operations of this CPU: compiled ones where they can be had."""
    machine = this_machine()
    if machine is not None and dtype in (torch.float32, torch.bfloat16):
        from gpu_workers.cpu.ops import CpuOps  # imports what only such machines have

        try:
            return CpuOps(dtype, machine)
        except RuntimeError as error:
            _say_plain("layers", str(error))
    else:
        _say_plain("layers", f"nothing can be compiled here for {dtype}")
    return TorchOps()


def _say_plain(what: str, reason: str) -> None:
    structlog.get_logger().warning("plain torch computes, which is slower", what=what, reason=reason[:300])
