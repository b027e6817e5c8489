"""The operations, attention and captured steps of CUDA devices. Imports Triton; `backend` imports this file for CUDA only."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.sampling_table import SamplingRows
from gpu_workers.cuda.deterministic import DeterministicCudaOps, DeterministicTritonAttention, KernelSampler
from gpu_workers.cuda.flash_attention import load_flash
from gpu_workers.cuda.fp8_ops import Fp8CudaOps
from gpu_workers.cuda.kernels.attention.widened_keys import allocate_widened
from gpu_workers.cuda.kernels.launch import LATE_WIDTH
from gpu_workers.cuda.ops import CudaOps
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.graphs.cuda_graphs import StepGraphs, launch_bound_tokens
from gpu_workers.graphs.graph_pool import GraphPool
from gpu_workers.graphs.mixed_graphs import MixedGraphs
from gpu_workers.graphs.mixed_sizes import mixed_sizes, urgent_sizes
from gpu_workers.layers.attention import Attention
from gpu_workers.layers.kv_pages import KvPages, LayerGates
from gpu_workers.layers.shard import Shard
from gpu_workers.layers.torch_ops import Ops
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.model import Model
from gpu_workers.pages.cuda.cuda_layer_copies import CudaLayerGates
from gpu_workers.runner.memory_estimate import widened_tokens
from gpu_workers.settings import Quantization


def cuda_ops(quantization: Quantization) -> Ops:
    """Our Triton kernels and cuBLAS, for weights of the model's dtype, or with "fp8" of 8-bit numbers."""
    return Fp8CudaOps() if quantization == "fp8" else CudaOps()


def triton_attention(
    dtype: torch.dtype, config: ModelConfig, shard: Shard, page_dtype: torch.dtype | None, device: torch.device
) -> Attention:
    """Attention for a model for which `why_not_triton` finds nothing, between `CudaOps`. page_dtype: as in `choose_backend`."""
    heads, kv_heads, follows_late = len(shard.heads), len(shard.kv_heads), config.hidden <= LATE_WIDTH
    widened = None
    has_flash = load_flash(dtype, config.head_dim, device)
    if page_dtype is not None or has_flash:
        widened = allocate_widened(kv_heads, widened_tokens(config, kv_heads), config.head_dim, dtype, device)
    return TritonAttention(
        heads,
        kv_heads,
        config.head_dim,
        dtype,
        follows_late=follows_late,
        widened=widened,
        page_dtype=page_dtype,
        flash=has_flash,
    )


def deterministic_ops() -> Ops:
    """Our Triton kernels alone, with one order of additions whatever the batch."""
    return DeterministicCudaOps()


def deterministic_attention(dtype: torch.dtype, head_dim: int, shard: Shard) -> Attention:
    """As `triton_attention`, with one order of additions whatever the batch."""
    return DeterministicTritonAttention(len(shard.heads), len(shard.kv_heads), head_dim, dtype)


def kernel_sampler(state: DeviceState) -> Callable[[torch.Tensor, SamplingRows], torch.Tensor]:
    """Samples by the kernels of captured steps; see `KernelSampler`."""
    return KernelSampler(state).sample


def capture_graphs(
    model: Model, kv: KvPages, state: DeviceState, max_step_tokens: int, on_progress: Callable[[float], None]
) -> StepGraphs | None:
    """Captures all steps that take the host longer to launch than the device to run. Arguments as in `backend.capture_steps`.

    Returns None unless attention is Triton's: torch's operators read sizes on the host, which a captured step cannot do."""
    attention, stages = model.parts.attention, model.parts.stages
    n_ranks = model.parts.group.size * (stages.stage.size if stages is not None else 1)
    if not isinstance(attention, TritonAttention):
        return None
    max_tokens = launch_bound_tokens(model.config.layer_parameters // n_ranks, max_step_tokens)
    sizes = mixed_sizes(state.n_slots, max_tokens, attention.tile_tokens, n_ranks)
    graphs = StepGraphs(
        state,
        lambda step: model.logits(model.forward(step, kv.arriving if step.arrives else kv)),
        sizes,
        attention.tile_tokens,
        widened_room=attention.widened_room,
        may_arrive=kv.gates is not None,
    )
    graphs.capture(on_progress, runs_each=n_ranks > 1)
    return graphs


def capture_urgent_graphs(
    model: Model, kv: KvPages, graphs: StepGraphs, max_tokens: int, priority: int
) -> tuple[GraphPool, MixedGraphs] | None:
    """Captures urgent steps in memory of their own, so that they may run beside the captured `graphs`. max_tokens: of the
    largest urgent step; priority: of the stream on which they run.

    Returns None if all of them take the device longer to run than the host to launch."""
    attention, state = model.parts.attention, graphs.pool.state
    assert isinstance(attention, TritonAttention), "steps are captured with no other one"
    sizes = urgent_sizes(launch_bound_tokens(model.config.layer_parameters, max_tokens), attention.tile_tokens)
    if not sizes:
        return None
    counts, samples = graphs.pool.counts, max(size.samples for size in sizes)
    pool = GraphPool(state, lambda step: model.logits(model.forward(step, kv)), samples, counts, priority)
    mixed = MixedGraphs(pool, sizes, attention.tile_tokens, attention.widened_room)
    mixed.capture(runs_each=False)
    torch.cuda.synchronize(state.device)
    return pool, mixed


def layer_gates(kv: KvPages) -> LayerGates:
    """By which steps wait for each layer of pages that are being loaded. Raises: CudaError without a driver."""
    return CudaLayerGates(kv.shape.n_layers, kv.shape.bytes_per_page // kv.shape.n_layers)
