"""The GPUs of the server, as the page shows them, from gauges with the label "gpu". Empty where no actor has any. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from messages.lifecycle.lifecycle import MetricFamily

_LABEL = "gpu"
_FIELDS = {
    "tardigrade_gpu_busy_ratio": "busy",
    "tardigrade_gpu_memory_used_bytes": "used_bytes",
    "tardigrade_gpu_memory_total_bytes": "total_bytes",
    "tardigrade_gpu_power_watts": "power_w",
    "tardigrade_gpu_temperature_celsius": "temperature_c",
}


class DeviceRow(msgspec.Struct, frozen=True):
    """One GPU. None: it does not say. `busy`: the share of time in which it computed."""

    gpu: str
    busy: float | None = None
    used_bytes: float | None = None
    total_bytes: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


def device_rows(families: Iterable[MetricFamily]) -> list[DeviceRow]:
    """One row for each GPU that somebody reports, by its name."""
    found: dict[str, dict[str, float]] = {}
    for family in families:
        field = _FIELDS.get(family.name)
        for sample in family.samples if field is not None else ():
            if field is not None and _LABEL in sample.labels:
                found.setdefault(sample.labels[_LABEL], {})[field] = sample.value
    return [DeviceRow(gpu, **fields) for gpu, fields in sorted(found.items())]
