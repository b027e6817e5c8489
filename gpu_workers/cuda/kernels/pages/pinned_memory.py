"""Copies between a device and pinned memory of the host by a kernel, around the copy engines.

A copy engine may do the copies of all streams in the order in which they were queued, so the few numbers of a step wait there
for milliseconds of pages: on an H200 a copy of 8 KiB to the host for the 9.8 ms of pages to the host before it, and 0.3 ms if a
kernel does it. A kernel reads and writes pinned memory over the bus by itself.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["SOURCE", "TARGET"])
def _copy_kernel(SOURCE, TARGET, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(TARGET + index, tl.load(SOURCE + index, mask=index < n), mask=index < n)


def copy_pinned(target: torch.Tensor, source: torch.Tensor) -> None:
    """Queue a copy of source to target on the current stream. Both are contiguous and of one size and dtype, one of them on a
    device, the other in pinned memory, which must stay until the copy has run."""
    if not source.numel():
        return
    word = torch.int64 if source.nbytes % 8 == 0 else torch.uint8
    source, target = source.view(-1).view(word), target.view(-1).view(word)
    n = len(source)
    _copy_kernel[(triton.cdiv(n, _BLOCK),)](source, target, n, BLOCK=_BLOCK, num_warps=4)


def warm_pinned_copies(device: torch.device) -> None:
    """Compile what `copy_pinned` needs."""
    for n_bytes in (3, 8, 16):
        on_host = torch.zeros(n_bytes, dtype=torch.uint8, pin_memory=True)
        on_device = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
        copy_pinned(on_device, on_host)
        copy_pinned(on_host, on_device)
        torch.cuda.synchronize(device)
