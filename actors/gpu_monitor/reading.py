"""What NVML says about one GPU at one moment. A value that the device does not have, or does not tell, is None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from actors.gpu_monitor.nvml_handles import text_of


class SlowReason(StrEnum):
    """Why a GPU runs slower than it could. The values are those of the label `reason` in metrics."""

    POWER_CAP = "power_cap"  # its power limit
    HARDWARE = "hardware"  # the hardware's own slowdown: heat or power, which the next ones tell
    HEAT = "heat"  # the driver lowers the clocks, because it is hot
    HARDWARE_HEAT = "hardware_heat"  # the hardware lowers them, because it is too hot
    POWER_BRAKE = "power_brake"  # the host's power supply asks for it
    CLOCK_SETTING = "clock_setting"  # somebody has set lower clocks
    SYNC_BOOST = "sync_boost"  # it keeps the pace of other GPUs


_BIT_BY_REASON = {  # of nvmlDeviceGetCurrentClocksEventReasons
    SlowReason.CLOCK_SETTING: 0x02,
    SlowReason.POWER_CAP: 0x04,
    SlowReason.HARDWARE: 0x08,
    SlowReason.SYNC_BOOST: 0x10,
    SlowReason.HEAT: 0x20,
    SlowReason.HARDWARE_HEAT: 0x40,
    SlowReason.POWER_BRAKE: 0x80,
}


@dataclass(frozen=True)
class GpuFacts:
    """What does not change while a device is there."""

    name: str
    uuid: str
    driver: str


@dataclass(frozen=True)
class GpuReading:
    """The sensors of one device. `busy` and `memory_busy` are shares of the driver's last sampling period, 0 to 1. Memory that
    the driver reserves is not in `used_bytes`. ECC errors are those since the driver was loaded."""

    busy: float | None
    memory_busy: float | None
    total_bytes: int | None
    used_bytes: int | None
    reserved_bytes: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: float | None
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    slow_reasons: frozenset[SlowReason] | None
    corrected_ecc_errors: int | None
    uncorrected_ecc_errors: int | None


def read_facts(nvml: Any, handle: Any) -> GpuFacts:
    """The names of a device. Raises: NVMLError."""
    driver = text_of(nvml.nvmlSystemGetDriverVersion())
    return GpuFacts(text_of(nvml.nvmlDeviceGetName(handle)), text_of(nvml.nvmlDeviceGetUUID(handle)), driver)


def read_gpu(nvml: Any, handle: Any) -> GpuReading:
    """Read all sensors of a device, in some milliseconds; a driver that hangs never returns. `nvml`: the pynvml module.

    Raises: NVMLError when the device does not answer any more, for example because it has fallen off the bus.
    """

    def ask(name: str, *arguments: Any) -> Any:
        return _asked(nvml, lambda: getattr(nvml, name)(handle, *arguments))

    use, memory = ask("nvmlDeviceGetUtilizationRates"), _memory(nvml, handle)
    bits = ask(_reasons_call(nvml))
    ecc = [ask("nvmlDeviceGetTotalEccErrors", kind, nvml.NVML_VOLATILE_ECC) for kind in _ecc_kinds(nvml)]
    return GpuReading(
        busy=None if use is None else use.gpu / 100,
        memory_busy=None if use is None else use.memory / 100,
        total_bytes=None if memory is None else int(memory.total),
        used_bytes=None if memory is None else int(memory.used),
        reserved_bytes=None if memory is None or not hasattr(memory, "reserved") else int(memory.reserved),
        power_w=_scaled(ask("nvmlDeviceGetPowerUsage"), 1e-3),
        power_limit_w=_scaled(ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        temperature_c=_scaled(ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU), 1.0),
        sm_clock_hz=_scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM), 1e6),
        memory_clock_hz=_scaled(ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM), 1e6),
        slow_reasons=None if bits is None else frozenset(r for r, bit in _BIT_BY_REASON.items() if bits & bit),
        corrected_ecc_errors=ecc[0],
        uncorrected_ecc_errors=ecc[1],
    )


def _ecc_kinds(nvml: Any) -> tuple[int, int]:
    return nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED


def _reasons_call(nvml: Any) -> str:
    """Drivers before 535 have the older name alone; the module has both."""
    new, old = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    return old if hasattr(nvml, old) else new


def _memory(nvml: Any, handle: Any) -> Any:
    """The second version tells reserved memory apart; older drivers have the first one alone."""
    second = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    return second if second is not None else _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))


def _asked(nvml: Any, call: Callable[[], Any]) -> Any:
    """What a call returns; None where the device or its driver does not have it. Raises: NVMLError for all other errors."""
    try:
        return call()
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NoPermission):
        return None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor
