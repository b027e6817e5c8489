"""The metrics of the GPUs. What a device does not tell has no sample; nor has one that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from actors.gpu_monitor.gpu_state import GpuState, GpuView
from actors.gpu_monitor.reading import GpuReading, SlowReason

_GPU = "gpu"
_GAUGES: dict[str, tuple[str, Callable[[GpuReading], float | None]]] = {
    "busy_ratio": ("Share of time in which a kernel ran on the GPU.", lambda r: r.busy),
    "memory_busy_ratio": ("Share of time in which the GPU's memory was read or written.", lambda r: r.memory_busy),
    "memory_total_bytes": ("Memory of the GPU.", lambda r: r.total_bytes),
    "memory_used_bytes": ("Memory of the GPU that processes have taken.", lambda r: r.used_bytes),
    "memory_reserved_bytes": ("Memory of the GPU that the driver keeps for itself.", lambda r: r.reserved_bytes),
    "power_watts": ("Power that the GPU takes.", lambda r: r.power_w),
    "power_limit_watts": ("Power that the GPU may take.", lambda r: r.power_limit_w),
    "temperature_celsius": ("Temperature of the GPU.", lambda r: r.temperature_c),
    "sm_clock_hertz": ("Clock of the GPU's processors.", lambda r: r.sm_clock_hz),
    "memory_clock_hertz": ("Clock of the GPU's memory.", lambda r: r.memory_clock_hz),
}


class GpuMetrics(Collector):
    """To be registered where the readers are. `views`: what is known of each GPU now."""

    def __init__(self, views: Callable[[], Sequence[GpuView]]) -> None:
        self._views = views

    def collect(self) -> Iterable[Metric]:
        """The metric families with their present values."""
        views = self._views()
        yield from _states(views)
        readable = [(view.name, view.reading) for view in views if view.reading is not None]
        for name, (documentation, value_of) in _GAUGES.items():
            family = GaugeMetricFamily(f"tardigrade_gpu_{name}", documentation, labels=[_GPU])
            for gpu, reading in readable:
                if (value := value_of(reading)) is not None:
                    family.add_metric([gpu], value)
            yield family
        yield from _faults(readable)


def _states(views: Sequence[GpuView]) -> Iterable[Metric]:
    info = GaugeMetricFamily("tardigrade_gpu_info", "1, with the names of the GPU.", labels=[_GPU, "name", "uuid", "driver"])
    readable = GaugeMetricFamily("tardigrade_gpu_readable", "1 while NVML tells the state of the GPU, else 0.", labels=[_GPU])
    hung = GaugeMetricFamily("tardigrade_gpu_hung", "1 while NVML does not answer for the GPU, else 0.", labels=[_GPU])
    for view in views:
        if (facts := view.facts) is not None:
            info.add_metric([view.name, facts.name, facts.uuid, facts.driver], 1.0)
        if view.state is not GpuState.STARTING:
            readable.add_metric([view.name], float(view.state is GpuState.READABLE))
            hung.add_metric([view.name], float(view.state is GpuState.HUNG))
    return info, readable, hung


def _faults(readable: Sequence[tuple[str, GpuReading]]) -> Iterable[Metric]:
    slow = GaugeMetricFamily("tardigrade_gpu_slow", "1 while the GPU is slowed for this reason.", labels=[_GPU, "reason"])
    ecc = CounterMetricFamily(
        "tardigrade_gpu_ecc_errors", "Memory errors of the GPU since its driver was loaded.", labels=[_GPU, "kind"]
    )
    for gpu, reading in readable:
        for reason in SlowReason if reading.slow_reasons is not None else ():
            slow.add_metric([gpu, reason.value], float(reason in (reading.slow_reasons or ())))
        counts = {"corrected": reading.corrected_ecc_errors, "uncorrected": reading.uncorrected_ecc_errors}
        for kind, count in counts.items():
            if count is not None:
                ecc.add_metric([gpu, kind], count)
    return slow, ecc
