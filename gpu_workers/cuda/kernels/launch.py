"""How the kernels are launched: programmatic dependent launch where the device has it.

A kernel launched with it starts while the kernel before it still runs, and may read what no kernel writes (weights, tables)
until it waits. Three rules make that safe, and every kernel of this folder keeps them:
1. each program waits (`gdc_wait`) before it reads or writes anything that changes, also before an early return;
2. because each waits, a kernel that has ended proves that all kernels before it have ended;
3. letting the next kernel start (`gdc_launch_dependents`) promises nothing about our results, so it may come first.

A kernel that lets the next one start after its own wait is late. It gives away some overlap, but when the next kernel starts,
all kernels before the late one have ended, and what they wrote may be read before the wait. Attention of a single row does so:
it reads the keys of earlier steps while the projection of the queries runs. A fourth rule makes that safe: where rows and heads
are so narrow, each kernel that can stand in front of attention is late. These are products of rows up to LATE_WIDTH and norms
of heads up to EARLY_HEAD_DIM.

Triton compiles a kernel anew for each combination of its constants, and of properties of its arguments: a number that is 1 or a
multiple of 16, an address that 16 divides. A request must never wait for that, so one more rule holds: a number that changes
from step to step is named in `do_not_specialize`, an array of single words that may begin anywhere in a larger one in
`do_not_specialize_on_alignment`; all other variants run before a rank is ready (`runner.model_loading`).
"""

from __future__ import annotations

import functools

import torch


@functools.cache
def dependent_launch(device: torch.device) -> bool:
    """True if kernels on this device can use programmatic dependent launch: compute capability 9.0 and up."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


LATE_WIDTH = 2048  # numbers of a row; the products of wider rows take so long that overlap is worth more (measured on an H200)
EARLY_HEAD_DIM = 64  # wider keys do not fit the registers of a program that reads them before it waits

ARRIVALS = 1 << 16


@functools.cache
def arrivals(device: torch.device) -> torch.Tensor:
    """[ARRIVALS] int32 on the device: how many programs of one piece of work have ended, for kernels whose last program joins
    the results. Zero between launches; one tensor serves all kernels, because a launch that counts ends before the next one
    touches it. The first call on a device may not be captured."""
    return torch.zeros(ARRIVALS, dtype=torch.int32, device=device)


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least n and `least`."""
    return max(least, 1 << (n - 1).bit_length())
