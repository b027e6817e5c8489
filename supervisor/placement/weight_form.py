"""What the weights of linear layers become where that depends on host and model (`quantization = "exact"` or "auto"), and why.
Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.settings import Quantization, WorkerSettings
from supervisor.placement.hardware import Host

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
    keep floats unless they are asked. Whoever names a dtype means the weights too."""
    if worker.quantization == "exact":
        return _exact_form(host, model, worker, is_on_cpu=is_on_cpu)
    if worker.quantization != "auto":
        return WeightForm(worker.quantization)
    if model is None or not is_on_cpu or worker.dtype != "auto" or not host.has_int8_dot:
        return WeightForm()
    if model.stored_as == _GROUPS_OF_INT4:
        return WeightForm("int4", "the file's own numbers")
    return WeightForm("int8", "fastest on this processor")


def _exact_form(host: Host, model: ModelConfig | None, worker: WorkerSettings, *, is_on_cpu: bool) -> WeightForm:
    """The file's own integers where a rank multiplies them with floats faster than it reads floats, else floats: both are the
    same numbers."""
    in_float32 = worker.dtype in ("auto", "float32")
    if model is None or not is_on_cpu or not in_float32 or model.stored_as not in _EXACT_TYPES:
        return WeightForm()
    if worker.load_format == "random":
        return WeightForm()
    if not host.has_wide_vectors:
        return WeightForm("none", "this processor has no AVX-512, or kernels cannot be compiled here")
    return WeightForm("exact", f"the file's own numbers ({model.stored_as}), nothing is rounded")
