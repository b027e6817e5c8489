"""The state of one GPU as its reader sees it. Pure: the clock is given."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from actors.gpu_monitor.reading import GpuFacts, GpuReading


class GpuState(StrEnum):
    """Whether a device can be read."""

    STARTING = "starting"  # the first reading is under way
    READABLE = "readable"
    FAILED = "failed"  # NVML answers with an error
    HUNG = "hung"  # NVML does not answer


@dataclass(frozen=True)
class GpuView:
    """What is known of a device now. `facts` and `reading` are None unless the state is READABLE: old values would look like
    new ones. `error`: what NVML has said, if it has failed."""

    name: str
    state: GpuState
    facts: GpuFacts | None = None
    reading: GpuReading | None = None
    error: str = ""


class GpuRecord:
    """The newest reading of a device, and since when the next one is under way. One thread calls `began` and `ended`, another
    one calls `view`; each replaces one reference. Times are seconds of one monotonic clock."""

    def __init__(self, name: str, hung_s: float) -> None:
        """`name`: of the device. `hung_s`: a reading that takes longer counts as hung."""
        self._name, self._hung_s = name, hung_s
        self._began_s: float | None = None
        self._last = GpuView(name, GpuState.STARTING)
        self.n_readings = 0

    def began(self, now_s: float) -> None:
        """A reading begins."""
        self._began_s = now_s

    def ended(self, facts: GpuFacts, reading: GpuReading) -> None:
        """The reading has succeeded."""
        self._last, self._began_s = GpuView(self._name, GpuState.READABLE, facts, reading), None
        self.n_readings += 1

    def failed(self, error: str) -> None:
        """NVML has answered with an error."""
        self._last, self._began_s = GpuView(self._name, GpuState.FAILED, error=error), None
        self.n_readings += 1

    def view(self, now_s: float) -> GpuView:
        """What is known at this time."""
        began_s = self._began_s
        if began_s is not None and now_s - began_s > self._hung_s:
            return GpuView(self._name, GpuState.HUNG)
        return self._last
