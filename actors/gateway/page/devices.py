"""The GPUs of the server, as the page shows them, from the metrics of the ranks. Empty where no rank reports any. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from messages.lifecycle.lifecycle import MetricFamily

# The gauges that ranks may have of their device, and the fields here
_FIELDS = {
    "tardigrade_gpu_busy_ratio": "busy",
    "tardigrade_gpu_memory_used_bytes": "used_bytes",
    "tardigrade_gpu_memory_total_bytes": "total_bytes",
    "tardigrade_gpu_power_watts": "power_w",
    "tardigrade_gpu_temperature_celsius": "temperature_c",
}


class DeviceRow(msgspec.Struct, frozen=True):
    """The GPU of one rank. None: it does not say. `busy`: the share of the last second."""

    actor: str
    busy: float | None = None
    used_bytes: float | None = None
    total_bytes: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


def device_rows(by_actor: Iterable[tuple[str, list[MetricFamily]]]) -> list[DeviceRow]:
    """One row for each actor that reports a GPU."""
    rows = []
    for actor, families in by_actor:
        found = {_FIELDS[one.name]: one.samples[0].value for one in families if one.name in _FIELDS and one.samples}
        if found:
            rows.append(DeviceRow(actor, **found))
    return rows
