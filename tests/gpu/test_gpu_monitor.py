"""What the GPU monitor says of real devices is what nvidia-smi says."""

from __future__ import annotations

import shutil
import subprocess

import pynvml
import pytest

from actors.gpu_monitor.nvml_handles import handle_of
from actors.gpu_monitor.reading import read_facts, read_gpu
from messages.lifecycle.gpu_figures import gpu_figures
from tests.support.real_server import real_server

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

_FIELDS = ("name", "uuid", "driver_version", "memory.total", "memory.used", "power.draw.instant", "temperature.gpu")
_MIB = 1 << 20


def asked(*fields: str) -> list[str]:
    """What nvidia-smi says of the first device."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no nvidia-smi")
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    return [cell.strip() for cell in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(",")]


def test_a_reading_is_what_nvidia_smi_says() -> None:
    name, uuid, driver, total, used, power, temperature = asked(*_FIELDS)
    pynvml.nvmlInit()
    handle = handle_of(pynvml, "0")
    facts, reading = read_facts(pynvml, handle), read_gpu(pynvml, handle)
    assert (facts.name, facts.uuid, facts.driver) == (name, uuid, driver)
    assert handle_of(pynvml, uuid) is not None
    assert reading.total_bytes is not None
    assert reading.used_bytes is not None
    assert reading.temperature_c is not None
    assert round(reading.total_bytes / _MIB) == int(total)
    assert abs(reading.used_bytes / _MIB - int(used)) <= 64  # the driver takes and gives some between two calls
    assert abs(reading.temperature_c - float(temperature)) <= 5
    if reading.power_w is not None and power.replace(".", "").isdigit():
        assert abs(reading.power_w - float(power)) <= 0.3 * float(power)
    assert reading.busy is not None
    assert 0.0 <= reading.busy <= 1.0


def test_a_server_on_gpus_tells_their_state() -> None:
    with real_server("--gpus", "1", "--no-standby") as server:
        report = server.wait_for(lambda r: any(c.name == "gpu_monitor/0" and c.statistics for c in r.children))
        monitor = next(child for child in report.children if child.name == "gpu_monitor/0")
        ((gpu, figures),) = gpu_figures(monitor.statistics).items()
        assert (gpu, figures.readable) == ("0", 1.0)
        assert figures.memory_used_bytes is not None
        assert figures.memory_used_bytes > 1 << 28  # the model is there
