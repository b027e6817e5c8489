"""NVML's handle of a device that is named as CUDA_VISIBLE_DEVICES names it."""

from __future__ import annotations

from typing import Any


def handle_of(nvml: Any, name: str) -> Any:
    """NVML's handle of a device; None when there is no such device. `nvml`: the pynvml module, which is initialised. `name`:
    an index, or a UUID or its beginning.

    Raises: NVMLError.
    """
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    if name.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(name)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    alike = [handle for handle in handles if name and text_of(nvml.nvmlDeviceGetUUID(handle)).startswith(name)]
    return alike[0] if len(alike) == 1 else None


def text_of(value: str | bytes) -> str:
    """The text of a value of NVML. Older versions of the module return bytes."""
    return value.decode() if isinstance(value, bytes) else value
