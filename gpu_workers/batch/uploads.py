"""Host arrays on their way to a device. A plain `.to(device)` waits until the device has done everything queued before it, and
host and device would never work at the same time; copies from pinned memory do not wait."""

from __future__ import annotations

import numpy as np
import torch


def upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """The array on the device, same shape and element type. On a CPU it may share the array's memory."""
    on_host = torch.from_numpy(np.ascontiguousarray(array))
    return on_host if device.type == "cpu" else on_host.pin_memory().to(device, non_blocking=True)


def upload_together(arrays: tuple[np.ndarray, ...], device: torch.device) -> list[torch.Tensor]:
    """Flat arrays of one element type, in one copy."""
    if device.type == "cpu":
        return [upload(array, device) for array in arrays]
    return list(upload(np.concatenate(arrays), device).split([len(array) for array in arrays]))
