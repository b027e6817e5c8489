"""The gate at which a step waits while an urgent one has the device, see `gpu_workers.batch.step_gate`."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

# About 0.1 s, several times as long as an urgent step takes. Then the step goes on beside it, so nothing waits for ever.
MOST_LOOKS = 100_000


@triton.jit
def _wait_kernel(CLOSED, LOOKS, most_looks):
    closed = tl.atomic_add(CLOSED, 0)
    n = closed * 0
    while (closed != 0) & (n < most_looks):
        closed = tl.atomic_add(CLOSED, 0)
        n += 1
    tl.store(LOOKS, n)  # without a result the loop would be empty


def wait_at_gate(closed: torch.Tensor, looks: torch.Tensor, most_looks: int = MOST_LOOKS) -> None:
    """What is launched after it waits until `closed` [1] int32 is 0, for so many looks at most. looks: [1] int32 on the same
    device, is overwritten with their number.

    It is launched without programmatic dependent launch: no kernel after it is on the device while it waits."""
    _wait_kernel[(1,)](closed, looks, most_looks, num_warps=1)
