"""How many pages of keys and values each replica of a placement gets, before anything is loaded. Pure.

Ranks measure it once the weights are loaded; on GPUs the estimate is conservative (`gpu_workers.runner.memory_estimate`).
"""

from __future__ import annotations

import msgspec

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_budget import count_pages
from gpu_workers.runner.memory_estimate import RankEstimate, default_cpu_kv_bytes, estimate_cuda_rank, kv_token_bytes
from gpu_workers.settings import WorkerSettings
from messages.steps import PAGE_TOKENS
from supervisor.placement.gpu_room import GpuRoom
from supervisor.placement.placement import Placement


def rank_estimate(placement: Placement, model: ModelConfig, worker: WorkerSettings) -> RankEstimate:
    """The memory of the fullest rank. On CPU cores without working memory, and with an equal part of the weights."""
    if placement.device == "cpu":
        token_bytes = kv_token_bytes(model, placement.tp, placement.dtype, worker.kv_dtype, placement.pp)
        return RankEstimate(placement.weight_bytes // placement.ranks, 0, token_bytes)
    on_gpu = msgspec.structs.replace(worker, device="cuda", n_slots=placement.slots_of(worker))
    sizes, quantization = (on_gpu.step_tokens, on_gpu.slots), placement.quantization_of(worker)
    return estimate_cuda_rank(model, placement.tp, placement.dtype, *sizes, quantization, worker.kv_dtype, placement.pp)


def kv_pages(placement: Placement, model: ModelConfig, worker: WorkerSettings, max_length: int) -> int:
    """Pages of each replica. `max_length`: tokens of one sequence; 0: the model's own limit.

    Raises: ConfigError when not even one short sequence fits.
    """
    estimate = rank_estimate(placement, model, worker)
    own = msgspec.structs.replace(worker, device=placement.device, n_slots=placement.slots_of(worker))
    if placement.device == "cpu":
        kv_bytes = worker.kv_memory_bytes or default_cpu_kv_bytes(placement.memory_bytes)
    else:
        tokens = GpuRoom(placement.memory_bytes, own).tokens(estimate, 1 + placement.has_standby)
        kv_bytes = tokens * estimate.kv_token_bytes
    return count_pages(kv_bytes, PAGE_TOKENS * estimate.kv_token_bytes, own.slots, max_length or model.max_position)
