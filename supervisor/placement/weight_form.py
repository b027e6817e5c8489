"""What the weights of linear layers become where that depends on host and model (`quantization = "exact"` or "auto"), and why.
Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.quantized.form import Numbers
from gpu_workers.settings import FP8_CAPABILITY, Quantization, WorkerSettings
from supervisor.placement.hardware import Host
from supervisor.placement.quantities import dotted

_GROUPS_OF_INT4 = "Q4_1"  # GGUF's type whose groups are those of int4
_EXACT_TYPES = (_GROUPS_OF_INT4, "Q8_0")  # GGUF's types whose integers are multiplied as they are


@dataclass(frozen=True)
class WeightForm:
    """How weights are stored on the devices. `reason`: why, where nobody has asked for it."""

    quantization: Quantization = "none"
    reason: str = ""


def choose_form(host: Host, model: ModelConfig | None, worker: WorkerSettings, *, is_on_cpu: bool) -> WeightForm:
    """The form that was asked for, or the fastest one whose loss is small: perplexity rises by less than one percent
    (docs/performance.md). On CPU cores a step waits for the weights to be read, so integers bring several times the speed. GPUs
    keep floats unless they are asked, or the file has 8-bit floats. Whoever names a dtype means the weights too."""
    if worker.quantization == "exact":
        return _exact_form(host, model, worker, is_on_cpu=is_on_cpu)
    if worker.quantization != "auto":
        return WeightForm(worker.quantization)
    if model is not None and not is_on_cpu:
        return _stored_fp8(host, model, worker, may_round=True)
    if model is None or worker.dtype != "auto" or not host.has_int8_dot:
        return WeightForm()
    stored = model.quantized
    if model.stored_as == _GROUPS_OF_INT4 or (stored and stored.has_whole_groups and stored.numbers is Numbers.INT4):
        return WeightForm("int4", "the file's own numbers")
    return WeightForm("int8", "fastest on this processor")


def _stored_fp8(host: Host, model: ModelConfig, worker: WorkerSettings, *, may_round: bool) -> WeightForm:
    """8-bit floats on GPUs for a checkpoint of such, where these GPUs multiply them. may_round: also where they have scales for
    blocks and have to get others for rows, or where the checkpoint was not made for inputs of 8 bits."""
    stored = model.quantized
    if stored is None or stored.numbers is not Numbers.FP8 or worker.load_format == "random":
        return WeightForm()
    if any(gpu.capability < FP8_CAPABILITY for gpu in host.gpus):
        return WeightForm("none", f"{stored.label} needs GPUs of compute capability {dotted(FP8_CAPABILITY)} or more")
    if worker.dtype not in ("auto", "bfloat16") or worker.deterministic:
        return WeightForm()
    if stored.has_rows_of_fp8 and (stored.rounds_inputs or may_round):
        return WeightForm("fp8", f"the file's own numbers, {stored.label}")
    if may_round:
        return WeightForm("fp8", f"the file has {stored.label}, which get a scale for each row")
    return WeightForm("none", f"as {stored.label} has it; --quantization fp8 takes half of the memory and rounds again")


def _exact_form(host: Host, model: ModelConfig | None, worker: WorkerSettings, *, is_on_cpu: bool) -> WeightForm:
    """The file's own integers where a rank multiplies them with floats faster than it reads floats, else floats: both are the
    same numbers. On GPUs the file's own 8-bit floats, where it was made for inputs of 8 bits."""
    if model is not None and not is_on_cpu:
        return _stored_fp8(host, model, worker, may_round=False)
    in_float32 = worker.dtype in ("auto", "float32")
    if model is None or not in_float32 or worker.load_format == "random":
        return WeightForm()
    stored = model.quantized
    if model.stored_as not in _EXACT_TYPES and not (stored and stored.has_whole_groups):
        return WeightForm()
    if not host.has_exact_products:
        return WeightForm("none", "this processor has neither AVX-512 nor AVX2, or kernels cannot be compiled here")
    name = f"{stored.numbers.value} of {stored.method}" if stored else model.stored_as
    return WeightForm("exact", f"the file's own numbers ({name}), nothing is rounded")
