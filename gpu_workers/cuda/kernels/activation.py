"""The gate of the feed-forward: silu(gate) * up."""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_workers.cuda.kernels.launch import dependent_launch, power_of_two

_BLOCK = 1024


@triton.jit
def silu_times(gate, up):
    """silu(gate) * up, of float32."""
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def _silu_mul_kernel(GATE_UP, OUT, N, stride_token, BLOCK: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    token = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < N
    gate = tl.load(GATE_UP + token * stride_token + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(GATE_UP + token * stride_token + N + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + token * N + column, silu_times(gate, up).to(OUT.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up [n_tokens, 2 n], rows contiguous -> a new [n_tokens, n] of its dtype."""
    n_tokens, n = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((n_tokens, n), dtype=gate_up.dtype, device=gate_up.device)
    if n_tokens == 0:
        return out
    block = min(_BLOCK, power_of_two(n))
    pdl = dependent_launch(gate_up.device)
    _silu_mul_kernel[(triton.cdiv(n, block), n_tokens)](
        gate_up, out, n, gate_up.stride(0), BLOCK=block, PDL=pdl, num_warps=4, launch_pdl=pdl
    )
    return out
