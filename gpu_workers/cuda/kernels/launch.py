"""How the kernels are launched: programmatic dependent launch where the device has it.

A kernel launched with it starts while the kernel before it still runs, and may read what no kernel writes (weights, tables)
until it waits. Three rules make that safe, and every kernel of this folder keeps them:
1. each program waits (`gdc_wait`) before it reads or writes anything that changes, also before an early return;
2. because each waits, a kernel that has ended proves that all kernels before it have ended;
3. letting the next kernel start (`gdc_launch_dependents`) promises nothing about our results, so it may come first.
"""

from __future__ import annotations

import functools

import torch


@functools.cache
def dependent_launch(device: torch.device) -> bool:
    """True if kernels on this device can use programmatic dependent launch: compute capability 9.0 and up."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least n and `least`."""
    return max(least, 1 << (n - 1).bit_length())
