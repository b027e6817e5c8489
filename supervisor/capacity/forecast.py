"""What a plan takes the times of steps from: the data sheet of a GPU, a guess for CPU cores. Pure."""

from __future__ import annotations

import os

from gpu_workers.model_store.model_config import ModelConfig
from messages.errors import ConfigError
from supervisor.capacity.capacity_plan import Forecast
from supervisor.capacity.gpu_kinds import KINDS, GpuKind, kind_of_device
from supervisor.capacity.roofline import Roofline, cpu_speed, gpu_speed, work_of
from supervisor.config.server_config import ServerConfig
from supervisor.placement.kv_room import rank_estimate
from supervisor.placement.placement import Placement

# How far steps may be off. tests/supervisor/capacity compares those of H200s and H100s with docs/performance_gpus.md
_MEASURED_KIND, _SEVERAL_RANKS, _OTHER_KIND, _CPU = 0.2, 0.25, 0.4, 0.6
_SHORT_STEP_S, _SHORT_STEP = 1.5e-3, 0.35  # steps of small models are kernels that wait for each other, and processes between
MEASURED = 0.25  # of a calibration, beside the noise of a machine
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def forecast(config: ServerConfig, model: ModelConfig, placement: Placement) -> Forecast:
    """The times of the placement by a roofline. Raises: ConfigError for GPUs whose data sheet is not here."""
    estimate = rank_estimate(placement, model, config.worker)
    work = work_of(model, placement.tp, estimate, _ITEM_BYTES[placement.dtype])
    if placement.device == "cpu":
        return Forecast(Roofline(work, cpu_speed(os.cpu_count() or 1, placement.dtype)), _CPU)
    kinds = [_known(gpu.name) for gpu in placement.gpus]
    slowest = min(kinds, key=lambda kind: kind.bandwidth)
    times = Roofline(work, gpu_speed(slowest))
    device = _MEASURED_KIND if all(kind.is_measured for kind in kinds) else _OTHER_KIND
    several = _SEVERAL_RANKS if placement.tp > 1 else 0.0
    small = _SHORT_STEP if times.step_s(1, 0) < _SHORT_STEP_S else 0.0
    return Forecast(times, max(device, several, small))


def _known(name: str) -> GpuKind:
    kind = kind_of_device(name)
    if kind is None:
        raise ConfigError(
            f"gpu: expected one of {', '.join(KINDS)} to plan with (--gpu), got {name}, whose speed is not known here"
        )
    return kind
