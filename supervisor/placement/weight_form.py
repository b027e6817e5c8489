"""What the weights of linear layers become where the operator leaves that to us (`quantization = "auto"`), and why. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.settings import Quantization, WorkerSettings
from supervisor.placement.hardware import Host

_GROUPS_OF_INT4 = "Q4_1"  # GGUF's type whose groups are those of int4


@dataclass(frozen=True)
class WeightForm:
    """How weights are stored on the devices. `reason`: why, where nobody has asked for it."""

    quantization: Quantization = "none"
    reason: str = ""


def choose_form(host: Host, model: ModelConfig | None, worker: WorkerSettings, *, is_on_cpu: bool) -> WeightForm:
    """The form that was asked for, or the fastest one whose loss is small: perplexity rises by less than one percent
    (docs/performance.md). On CPU cores a step waits for the weights to be read, so integers bring several times the speed. GPUs
    keep floats unless they are asked. Whoever names a dtype means the weights too."""
    if worker.quantization != "auto":
        return WeightForm(worker.quantization)
    if model is None or not is_on_cpu or worker.dtype != "auto" or not host.has_int8_dot:
        return WeightForm()
    if model.stored_as == _GROUPS_OF_INT4:
        return WeightForm("int4", "the file's own numbers")
    return WeightForm("int8", "fastest on this processor")
