"""Reads one GPU again and again in a thread of its own: a call of NVML can hang for ever, and must keep nobody waiting."""

from __future__ import annotations

import threading
import time
from typing import Any

from actors.gpu_monitor.gpu_state import GpuRecord, GpuView
from actors.gpu_monitor.nvml_handles import handle_of
from actors.gpu_monitor.reading import GpuFacts, read_facts, read_gpu


class GpuReader:
    """The thread of one device. It is a daemon: one that hangs does not keep the process from ending."""

    def __init__(self, name: str, nvml: Any, every_s: float, hung_s: float) -> None:
        """`name`: of the device, as CUDA_VISIBLE_DEVICES has it. `nvml`: the pynvml module."""
        self._name, self._nvml, self._every_s = name, nvml, every_s
        self._record = GpuRecord(name, hung_s)
        self._stopped = threading.Event()
        self._found: tuple[Any, GpuFacts] | None = None  # its handle; None: it has to be found (again)
        self._thread = threading.Thread(target=self._run, name=f"gpu {name}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more. Does not wait for a call that is under way."""
        self._stopped.set()

    def view(self) -> GpuView:
        """What is known of the device now."""
        return self._record.view(time.monotonic())

    @property
    def n_readings(self) -> int:
        """Readings that have ended, with values or an error."""
        return self._record.n_readings

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._record.began(time.monotonic())
            try:
                handle, facts = self._find()
                self._record.ended(facts, read_gpu(self._nvml, handle))
            except Exception as error:  # NVML's, and those of values that a driver must not give: the next reading may succeed
                self._found = None
                self._record.failed(str(error) or type(error).__name__)
            self._stopped.wait(self._every_s)

    def _find(self) -> tuple[Any, GpuFacts]:
        """The handle and the names of the device. Raises: NVMLError, LookupError."""
        if self._found is None:
            self._nvml.nvmlInit()  # counted by NVML, so that each thread may call it
            handle = handle_of(self._nvml, self._name)
            if handle is None:
                raise LookupError(f"expected a GPU with the index or UUID {self._name}, got none")
            self._found = handle, read_facts(self._nvml, handle)
        return self._found
