"""The GPU monitor: the only process that asks NVML while the server runs.

Neither ranks nor the supervisor ask it: a sick GPU can keep a process in the kernel, where even SIGKILL does not reach it, and
a supervisor or a gang must not wait there. This process holds nothing that others need, so its death costs some seconds of
metrics. It also outlives gangs: the sensors can be read while a rank is dead.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from actors.actor import Actor, Handler
from actors.gpu_monitor.gpu_metrics import GpuMetrics
from actors.gpu_monitor.gpu_reader import GpuReader
from actors.gpu_monitor.gpu_state import GpuState, GpuView
from actors.gpu_monitor.reading import SlowReason
from actors.gpu_monitor.settings import GpuMonitorSettings
from messages.lifecycle.gpu_figures import GpuFigures, statistics_of
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.transport.mailbox import MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import Message

_SICK_REASONS = frozenset({SlowReason.HARDWARE, SlowReason.HEAT, SlowReason.HARDWARE_HEAT, SlowReason.POWER_BRAKE})


class GpuMonitorActor(Actor):
    """Reads each GPU once in `every_s`. `nvml`: a stand-in for the pynvml module."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox, nvml: Any = None) -> None:
        super().__init__(spawn_spec, make_mailbox)
        settings = msgspec.json.decode(spawn_spec.settings, type=GpuMonitorSettings)
        nvml = importlib.import_module("pynvml") if nvml is None else nvml
        names = dict.fromkeys(settings.devices)  # each device once
        self._readers = [GpuReader(name, nvml, settings.every_s, settings.hung_s) for name in names]
        self._shown: dict[str, GpuState] = {}  # as logged
        self.registry.register(GpuMetrics(self.views))

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {}

    async def start(self) -> dict[str, str]:
        """Begin to read. Does not wait for the first readings: a driver that hangs never gives them."""
        for reader in self._readers:
            reader.start()
        return {"gpus": str(len(self._readers))}

    async def stop(self) -> None:
        for reader in self._readers:
            reader.stop()

    def views(self) -> list[GpuView]:
        """What is known of each GPU now."""
        return [reader.view() for reader in self._readers]

    def tick(self) -> None:
        """Log each GPU that cannot be read any more, or can be read again."""
        for view in self.views():
            was, self._shown[view.name] = self._shown.get(view.name, GpuState.STARTING), view.state
            if view.state is was or (was is GpuState.STARTING and view.state is GpuState.READABLE):
                continue
            log = self.log.warning if view.state is GpuState.READABLE else self.log.error
            log("gpu", gpu=view.name, state=view.state, **({"reason": view.error} if view.error else {}))

    def statistics(self) -> dict[str, float]:
        return statistics_of({view.name: _figures(view) for view in self.views() if view.state is not GpuState.STARTING})

    def progress(self) -> tuple[int, float]:
        return sum(reader.n_readings for reader in self._readers), 0.0


def _figures(view: GpuView) -> GpuFigures:
    """What `supervisor status` shows of a GPU."""
    known = GpuFigures(readable=float(view.state is GpuState.READABLE))
    if (reading := view.reading) is None:
        return known
    reasons = reading.slow_reasons
    return replace(
        known,
        busy_percent=None if reading.busy is None else round(reading.busy * 100, 1),
        memory_used_bytes=reading.used_bytes,
        memory_total_bytes=reading.total_bytes,
        power_watts=reading.power_w,
        power_limit_watts=reading.power_limit_w,
        temperature_celsius=reading.temperature_c,
        slow=None if reasons is None else float(bool(reasons & _SICK_REASONS)),
        uncorrected_ecc_errors=reading.uncorrected_ecc_errors,
    )


async def run(spawn_spec: SpawnSpec) -> int:
    """Run one incarnation of the monitor; returns the exit status."""
    return await GpuMonitorActor(spawn_spec).run()
