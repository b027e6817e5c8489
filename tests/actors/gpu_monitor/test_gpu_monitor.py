"""The monitor tells what NVML says of each GPU, says when it cannot, and never waits for a call that hangs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from actors.gpu_monitor.gpu_monitor_actor import GpuMonitorActor
from actors.gpu_monitor.gpu_state import GpuRecord, GpuState
from actors.gpu_monitor.reading import GpuFacts, SlowReason, read_gpu
from actors.gpu_monitor.settings import GpuMonitorSettings
from messages.exposition import render_exposition
from messages.lifecycle.gpu_figures import GpuFigures, gpu_figures, statistics_of
from messages.metrics import take_snapshot
from messages.transport.mailbox import MemoryMailbox, MemoryNetwork
from tests.actors.gpu_monitor.conftest import LoadedStub
from tests.support.memory_cluster import spawn_spec_of
from tests.support.waiting import until

_POWER_CAP, _HARDWARE_HEAT = 0x04, 0x40


def monitor_of(loaded: LoadedStub, *devices: str, hung_s: float = 60.0) -> GpuMonitorActor:
    network = MemoryNetwork()
    settings = GpuMonitorSettings(devices=list(devices), hung_s=hung_s)

    def mailbox(name: str, incarnation: int, endpoint: str) -> MemoryMailbox:
        return MemoryMailbox(network, name, incarnation, endpoint)

    return GpuMonitorActor(spawn_spec_of("gpu_monitor/0", settings), mailbox, nvml=loaded.nvml)


@contextlib.asynccontextmanager
async def started(monitor: GpuMonitorActor) -> AsyncIterator[GpuMonitorActor]:
    await monitor.start()
    try:
        yield monitor
    finally:
        await monitor.stop()


def samples_of(monitor: GpuMonitorActor) -> set[str]:
    text = render_exposition([("gpu_monitor/0", take_snapshot(monitor.registry))]).decode()
    return {line for line in text.splitlines() if line.startswith("tardigrade_gpu")}


def test_a_reading_has_the_sensors_in_units_of_their_names(loaded: LoadedStub) -> None:
    reasons = _POWER_CAP | _HARDWARE_HEAT
    loaded.stub.say(gpus=1, busy=87, watts=412, celsius=61, used=71_000_000_000, reasons=reasons, corrected=3, uncorrected=1)
    loaded.nvml.nvmlInit()
    reading = read_gpu(loaded.nvml, loaded.nvml.nvmlDeviceGetHandleByIndex(0))
    assert (reading.busy, reading.memory_busy) == (0.87, 0.43)
    assert (reading.total_bytes, reading.used_bytes, reading.reserved_bytes) == (80_000_000_000, 71_000_000_000, 500_000_000)
    assert (reading.power_w, reading.power_limit_w, reading.temperature_c) == (412.0, 700.0, 61.0)
    assert (reading.sm_clock_hz, reading.memory_clock_hz) == (1.98e9, None)  # the stub has no clock of memory
    assert reading.slow_reasons == {SlowReason.POWER_CAP, SlowReason.HARDWARE_HEAT}
    assert (reading.corrected_ecc_errors, reading.uncorrected_ecc_errors) == (3, 1)


async def test_each_gpu_has_its_metrics_and_figures(loaded: LoadedStub) -> None:
    loaded.stub.say(gpus=2, busy=50, watts=300, celsius=60, used=40_000_000_000, reasons=_HARDWARE_HEAT)
    async with started(monitor_of(loaded, "0", "GPU-stub-1", "0")) as monitor:
        await until(lambda: all(view.state is GpuState.READABLE for view in monitor.views()))
        samples = samples_of(monitor)
        assert 'tardigrade_gpu_busy_ratio{actor="gpu_monitor/0",gpu="0"} 0.5' in samples
        assert 'tardigrade_gpu_memory_used_bytes{actor="gpu_monitor/0",gpu="GPU-stub-1"} 4e+10' in samples
        assert 'tardigrade_gpu_slow{actor="gpu_monitor/0",gpu="0",reason="hardware_heat"} 1.0' in samples
        assert 'tardigrade_gpu_slow{actor="gpu_monitor/0",gpu="0",reason="power_cap"} 0.0' in samples
        assert not any("memory_clock" in sample for sample in samples)  # what a device does not tell is no 0
        info = 'actor="gpu_monitor/0",driver="550.0",gpu="0",name="Stub GPU",uuid="GPU-stub-0"'
        assert f"tardigrade_gpu_info{{{info}}} 1.0" in samples
        figures = gpu_figures(monitor.statistics())
        assert list(figures) == ["0", "GPU-stub-1"]  # each once, however often it is named
        assert figures["0"] == GpuFigures(1.0, 50.0, 4e10, 8e10, 300.0, 700.0, 60.0, 1.0, 0.0)
        assert monitor.progress()[0] >= 2


async def test_a_lost_gpu_is_told_and_read_again_when_it_is_back(loaded: LoadedStub) -> None:
    loaded.stub.say(gpus=1, busy=50, lost=1)
    async with started(monitor_of(loaded, "0", "7")) as monitor:
        await until(lambda: all(view.state is GpuState.FAILED for view in monitor.views()))
        monitor.tick()
        samples = samples_of(monitor)
        assert 'tardigrade_gpu_readable{actor="gpu_monitor/0",gpu="0"} 0.0' in samples
        assert 'tardigrade_gpu_hung{actor="gpu_monitor/0",gpu="0"} 0.0' in samples
        assert not any(sample.startswith("tardigrade_gpu_busy_ratio{") for sample in samples)
        assert monitor.statistics() == {"readable of gpu 0": 0.0, "readable of gpu 7": 0.0}
        loaded.stub.say(gpus=1, busy=50)
        await until(lambda: monitor.views()[0].state is GpuState.READABLE)
        assert monitor.views()[1].state is GpuState.FAILED  # there is no such device


async def test_a_hung_call_keeps_nobody_waiting(loaded: LoadedStub) -> None:
    loaded.stub.say(gpus=1, hang=1)
    try:
        async with started(monitor_of(loaded, "0", hung_s=0.01)) as monitor:
            await until(lambda: monitor.views()[0].state is GpuState.HUNG)
            monitor.tick()
            assert 'tardigrade_gpu_hung{actor="gpu_monitor/0",gpu="0"} 1.0' in samples_of(monitor)
            assert monitor.beat(with_metrics=True).statistics == {"readable of gpu 0": 0.0}
    finally:
        loaded.stub.say(gpus=1)  # the thread goes on and ends


def test_old_values_are_not_shown_for_a_gpu_that_hangs() -> None:
    record = GpuRecord("0", hung_s=5.0)
    assert record.view(0.0).state is GpuState.STARTING
    record.began(10.0)
    assert record.view(15.0).state is GpuState.STARTING
    reading = object()
    record.ended(GpuFacts("H200", "GPU-1", "570"), reading)  # type: ignore[arg-type]
    assert record.view(1000.0).reading is reading
    record.began(1001.0)
    assert record.view(1006.0).reading is reading
    assert (record.view(1006.1).state, record.view(1006.1).reading) == (GpuState.HUNG, None)
    record.failed("lost")
    assert (record.view(1007.0).state, record.view(1007.0).error, record.n_readings) == (GpuState.FAILED, "lost", 2)


def test_figures_come_back_from_statistics() -> None:
    figures = {"0": GpuFigures(readable=0.0), "GPU-1": GpuFigures(1.0, busy_percent=12.5)}
    told = statistics_of(figures)
    assert gpu_figures({**told, "fan_percent of gpu 0": 3.0, "steps": 4.0}) == figures  # of a later release, and of others
