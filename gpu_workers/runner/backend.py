"""Chooses how a rank computes on its device: operations, attention and captured steps. Nothing else decides this.

    device   operations    attention                               captured steps
    cuda     CudaOps, Fp8  TritonAttention where it can, or torch   CUDA graphs, with Triton attention
    cpu      CpuOps        CpuAttention where it can, or torch      native programs, with both
    any      TorchOps      TorchAttention                           none

With `deterministic` there is no choice: the kernels whose results do not depend on the batch, or a ConfigError.

`cuda_backend` and the kernels of CPUs import what only such machines have, so they are imported inside of functions.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog
import torch

from gpu_workers.batch.device_state import DeviceState
from gpu_workers.batch.sampling_table import SamplingRows
from gpu_workers.cpu.kernels.machine import can_attend, this_machine
from gpu_workers.cuda.capability import why_not_triton
from gpu_workers.layers.attention import Attention, TorchAttention
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.page_format import FP8, INT4
from gpu_workers.layers.shard import Shard
from gpu_workers.layers.torch_ops import Ops, TorchOps
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.model import Model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.settings import FP8_CAPABILITY, PAGES_CAPABILITY, AttentionChoice, KvDtype, Quantization
from messages.errors import ConfigError

if TYPE_CHECKING:
    from gpu_workers.cpu.deterministic import DeterministicCpuOps
    from gpu_workers.cpu.ops import CpuOps
    from gpu_workers.graphs.cpu_programs import CpuPrograms
    from gpu_workers.graphs.cuda_graphs import StepGraphs

# None: that of the model
PAGE_DTYPES: dict[KvDtype, torch.dtype | None] = {"auto": None, "int8": torch.int8, "int4": INT4, "fp8": FP8}


@dataclass(frozen=True)
class Backend:
    """What a model is built with."""

    ops: Ops
    attention: Attention


@dataclass(frozen=True)
class CapturedSteps:
    """What runs a fitting step as one call; both are None where steps cannot be captured."""

    graphs: StepGraphs | None = None  # on CUDA: whole steps, sampling included
    programs: CpuPrograms | None = None  # on CPUs: from tokens to logits


def import_backend(device: str) -> None:
    """Imports all that `choose_backend` and `capture_steps` use on "cpu" or "cuda", without touching a device."""
    if device == "cuda":
        importlib.import_module("gpu_workers.runner.cuda_backend")
    elif this_machine() is not None:
        importlib.import_module("gpu_workers.graphs.cpu_programs")


def choose_backend(
    placement: WeightPlacement,
    config: ModelConfig,
    shard: Shard,
    attention: AttentionChoice = "auto",
    *,
    deterministic: bool = False,
    page_dtype: torch.dtype | None = None,
) -> Backend:
    """The fastest back end for this device, dtype and model. Torch computes the rest, with a warning in the log.

    deterministic: what is computed for a token does not depend on the rest of the batch; see `WorkerSettings.deterministic`.
    page_dtype: of keys and values in pages; None: the model's.
    Raises: ConfigError if Triton attention is asked for and cannot compute this model, if `deterministic` is asked for and
    no such kernels can compute it, or if the device has no kernels for this page_dtype or the placement's quantization."""
    if page_dtype is not None:
        _check_pages(placement.device, page_dtype)
    if placement.quantization not in ("none", "exact"):
        _check_quantization(placement, deterministic)
    if deterministic:
        return _deterministic_backend(placement, config, shard, page_dtype)
    if placement.device.type == "cuda":
        return _cuda_backend(placement, config, shard, attention, page_dtype)
    ops = cpu_ops(placement.dtype, page_dtype, placement.quantization)
    return Backend(ops, _cpu_attention(placement.dtype, config, shard, page_dtype))


def plain_backend(placement: WeightPlacement, config: ModelConfig, shard: Shard) -> Backend:
    """Plain torch, on any device: the reference."""
    return Backend(TorchOps(), _torch_attention(placement.dtype, shard))


def deterministic_sampler(state: DeviceState) -> Callable[[torch.Tensor, SamplingRows], torch.Tensor] | None:
    """The function that samples tokens outside of captured steps, by the kernels of those: equal logits give equal tokens.
    It takes logits [S, vocabulary] and their sampling rows, and returns the tokens, int64 [S].
    None on a CPU, where all steps sample in the same way."""
    if state.device.type != "cuda":
        return None
    from gpu_workers.runner.cuda_backend import kernel_sampler

    return kernel_sampler(state)


def capture_steps(
    model: Model, kv: KvPages, state: DeviceState, max_step_tokens: int, on_progress: Callable[[float], None]
) -> CapturedSteps:
    """Captures the steps of this model as one call each, where its back ends allow that. Weights, pages and tables must not
    move afterwards. max_step_tokens: tokens of the largest step; on_progress: called with the fraction done, 0 to 1."""
    if model.device.type == "cuda":
        from gpu_workers.runner.cuda_backend import capture_graphs

        return CapturedSteps(graphs=capture_graphs(model, kv, state, max_step_tokens, on_progress))
    if this_machine() is None:
        return CapturedSteps()
    from gpu_workers.graphs.cpu_programs import cpu_programs

    return CapturedSteps(programs=cpu_programs(model, kv, state))


def with_gates(kv: KvPages, model: Model) -> KvPages:
    """The pages, with what lets a step begin while some of them are loaded. Without it on CPUs, whose loads run between steps,
    and with several ranks: loads end at other times on each, and all of them have to take the same kind of step."""
    if model.device.type == "cpu" or model.parts.group.size > 1 or model.parts.stages is not None:
        return kv
    from gpu_workers.runner.cuda_backend import layer_gates

    return replace(kv, gates=layer_gates(kv))


def cpu_ops(dtype: torch.dtype, page_dtype: torch.dtype | None = None, quantization: Quantization = "none") -> Ops:
    """The fastest operations of this CPU: compiled kernels where they can be compiled, else torch. page_dtype, quantization: as
    above. Raises: ConfigError if weights are to be quantised and LLVM refuses the kernels."""
    machine = this_machine()
    if machine is None or dtype not in (torch.float32, torch.bfloat16):
        _log_torch("layers", f"no kernels can be compiled here for {dtype}")
        return TorchOps()
    try:
        return _kind_of_cpu_ops(quantization)(dtype, machine, page_dtype)
    except RuntimeError as error:
        if quantization not in ("none", "exact"):
            raise ConfigError(f"worker.quantization: expected none on this machine, got {quantization} ({error})") from None
        _log_torch("layers", str(error))
        return TorchOps()


def _kind_of_cpu_ops(quantization: Quantization) -> type[CpuOps]:
    """The class of operations for weights with this quantization. It is imported here, because a spare process has imported
    only the class for plain weights."""
    match quantization:
        case "int8":
            from gpu_workers.cpu.int8_ops import Int8CpuOps as Kind
        case "int4":
            from gpu_workers.cpu.int4_ops import Int4CpuOps as Kind
        case "exact":
            from gpu_workers.cpu.exact_ops import ExactCpuOps as Kind
        case "none" | "fp8":  # fp8 has been refused
            from gpu_workers.cpu.ops import CpuOps as Kind
    return Kind


def _kind_of_deterministic_ops(quantization: Quantization) -> type[DeterministicCpuOps]:
    match quantization:
        case "int8":
            from gpu_workers.cpu.int8_ops import DeterministicInt8CpuOps as Kind
        case "int4":
            from gpu_workers.cpu.int4_ops import DeterministicInt4CpuOps as Kind
        case "exact":
            from gpu_workers.cpu.exact_ops import DeterministicExactCpuOps as Kind
        case "none" | "fp8":
            from gpu_workers.cpu.deterministic import DeterministicCpuOps as Kind
    return Kind


def _check_pages(device: torch.device, page_dtype: torch.dtype) -> None:
    """Raises: ConfigError if nothing reads and writes such pages on this device."""
    names: dict[torch.dtype | None, KvDtype] = {dtype: name for name, dtype in PAGE_DTYPES.items()}
    kv_dtype = names[page_dtype]
    if device.type != "cuda":
        if kv_dtype == "fp8":
            raise ConfigError("worker.kv_dtype: expected auto, int8 or int4 on CPU cores, got fp8, which GPUs have")
        return
    least, found = PAGES_CAPABILITY[kv_dtype], torch.cuda.get_device_capability(device)
    if found < least:
        wanted, got = (".".join(map(str, capability)) for capability in (least, found))
        raise ConfigError(
            f"worker.kv_dtype: expected auto, or a GPU of compute capability {wanted}; got {kv_dtype} on one of {got}"
        )


def _check_quantization(placement: WeightPlacement, deterministic: bool) -> None:
    """Raises: ConfigError if no kernels multiply such weights on this device."""
    quantization = placement.quantization
    if placement.device.type == "cuda":
        if quantization != "fp8":
            raise ConfigError(f"worker.quantization: expected none or fp8 on a GPU, got {quantization}, which CPU cores have")
        capability = torch.cuda.get_device_capability(placement.device)
        if capability < FP8_CAPABILITY or placement.dtype != torch.bfloat16 or deterministic:
            raise ConfigError(
                f"worker.quantization: expected none, or bfloat16 without worker.deterministic on a GPU of compute capability"
                f" 9.0 or more; got fp8 with {placement.dtype} on one of {capability[0]}.{capability[1]}"
            )
        return
    if quantization == "fp8":
        raise ConfigError("worker.quantization: expected none, int8 or int4 on CPU cores, got fp8, which GPUs have")
    machine = this_machine()
    if machine is None or placement.dtype not in (torch.float32, torch.bfloat16):
        raise ConfigError(
            f"worker.quantization: expected none, or float32 or bfloat16 and a processor that kernels can be compiled for; got"
            f" {quantization} with {placement.dtype} and {machine or 'no such processor'}"
        )


def _deterministic_backend(
    placement: WeightPlacement, config: ModelConfig, shard: Shard, page_dtype: torch.dtype | None
) -> Backend:
    if placement.device.type == "cuda":
        reason = why_not_triton(config)
        if reason is not None:
            raise ConfigError(f"worker.deterministic: expected false for this model, got true ({reason})")
        from gpu_workers.runner.cuda_backend import deterministic_attention, deterministic_ops

        return Backend(deterministic_ops(), deterministic_attention(placement.dtype, config.head_dim, shard))
    machine, dtype = this_machine(), placement.dtype
    if machine is None or not can_attend(dtype, config.head_dim, page_dtype):
        raise ConfigError(
            "worker.deterministic: expected float32 or bfloat16, heads of whole vectors and a processor that kernels can be"
            f" compiled for; got {dtype}, heads of {config.head_dim} numbers and {machine or 'none'}"
        )
    from gpu_workers.cpu.deterministic import DeterministicCpuAttention

    attention = DeterministicCpuAttention(dtype, shard.shared_heads, len(shard.kv_heads), config.head_dim, page_dtype)
    ops = _kind_of_deterministic_ops(placement.quantization)(dtype, machine, page_dtype)
    return Backend(ops, attention)


def _cpu_attention(dtype: torch.dtype, config: ModelConfig, shard: Shard, page_dtype: torch.dtype | None) -> Attention:
    if can_attend(dtype, config.head_dim, page_dtype):
        from gpu_workers.cpu.attention import CpuAttention

        try:
            return CpuAttention(dtype, shard.shared_heads, len(shard.kv_heads), config.head_dim, page_dtype)
        except RuntimeError as error:
            _log_torch("attention", str(error))
    return _torch_attention(dtype, shard)


def _cuda_backend(
    placement: WeightPlacement, config: ModelConfig, shard: Shard, choice: AttentionChoice, page_dtype: torch.dtype | None
) -> Backend:
    from gpu_workers.runner.cuda_backend import cuda_ops, triton_attention

    if chooses_triton(config, choice):
        attention = triton_attention(placement.dtype, config, shard, page_dtype, placement.device)
    else:
        attention = _torch_attention(placement.dtype, shard)
    return Backend(cuda_ops(placement.quantization), attention)


def chooses_triton(config: ModelConfig, choice: AttentionChoice) -> bool:
    """True if the Triton back end computes this model's attention on CUDA.

    Raises: ConfigError if choice is "triton" and the kernels cannot compute it."""
    reason = why_not_triton(config)
    if choice == "triton" and reason is not None:
        raise ConfigError(f"worker.attention: expected auto or torch for this model, got triton ({reason})")
    if choice == "auto" and reason is not None:
        _log_torch("attention", reason)
    return choice != "torch" and reason is None


def _torch_attention(dtype: torch.dtype, shard: Shard) -> Attention:
    return TorchAttention(dtype, shard.shared_heads, len(shard.kv_heads))


def _log_torch(what: str, reason: str) -> None:
    structlog.get_logger().warning("plain torch computes, which is slower", what=what, reason=reason[:300])
