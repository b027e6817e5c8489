"""The figures of GPUs in the statistics of the GPU monitor: how they are named there, and how they are read back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

_OF = " of gpu "  # between the name of a figure and that of a GPU


@dataclass(frozen=True)
class GpuFigures:
    """What one GPU does now. None: the device does not tell it, or cannot be read."""

    readable: float | None = None  # 1; 0: NVML does not answer, or answers with an error
    busy_percent: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    slow: float | None = None  # 1 while it is slowed by heat, power or its hardware
    uncorrected_ecc_errors: float | None = None


def statistics_of(figures: Mapping[str, GpuFigures]) -> dict[str, float]:
    """The statistics that carry these figures. `figures`: by the name of the GPU."""
    return {
        f"{field.name}{_OF}{gpu}": value
        for gpu, known in figures.items()
        for field in fields(GpuFigures)
        if (value := getattr(known, field.name)) is not None
    }


def is_gpu_figure(key: str) -> bool:
    """True for a name in statistics that is one of a GPU's figures."""
    return _OF in key


def gpu_figures(statistics: Mapping[str, float]) -> dict[str, GpuFigures]:
    """The figures in the statistics of a GPU monitor, by the name of the GPU. Names that this release does not know are
    ignored."""
    names = {field.name for field in fields(GpuFigures)}
    by_gpu: dict[str, dict[str, float]] = {}
    for key, value in statistics.items():
        name, of, gpu = key.partition(_OF)
        if of and name in names:
            by_gpu.setdefault(gpu, {})[name] = value
    return {gpu: GpuFigures(**known) for gpu, known in by_gpu.items()}
