"""The operations of a decoder layer on CUDA devices: one Triton kernel each, and matrix products by cuBLAS or, for one row, by
our own kernels. All of them can be captured in a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import linear

from gpu_workers.cuda.kernels import activation, norm, rope
from gpu_workers.cuda.kernels.gemv import GemvShape, gemv, gemv_shape
from gpu_workers.cuda.kernels.norm_gemv import norm_gemv, norm_gemv_shape
from gpu_workers.layers.torch_ops import KvTarget, Ops

_GEMV_ROWS = 1  # with two rows registers spill on wide outputs and cuBLAS is faster


@dataclass(frozen=True)
class PackedLinear:
    """A weight [out, in], and the shapes of the kernels that multiply it with one row: `one` alone (None where cuBLAS is
    faster), `normed` after the norm, `gated` after the norm and before the gate (None where separate kernels are faster)."""

    weight: torch.Tensor
    one: GemvShape | None
    normed: GemvShape | None
    gated: GemvShape | None


class CudaOps(Ops):
    """The CUDA back end of `Ops`; holds no tensors."""

    def linear_weight(self, packed: torch.Tensor) -> PackedLinear:
        """See Ops."""
        if packed.dtype not in (torch.bfloat16, torch.float16) or packed.stride(-1) != 1:
            return PackedLinear(packed, None, None, None)
        n_out, width = packed.shape
        normed, gated = (norm_gemv_shape(n_out, width, is_gated) for is_gated in (False, True))
        return PackedLinear(packed, gemv_shape(n_out, width), normed, gated)

    def linear(self, x: torch.Tensor, weight: PackedLinear, bias: torch.Tensor | None) -> torch.Tensor:
        """See Ops."""
        if weight.one is not None and x.shape[0] == _GEMV_ROWS and x.stride(-1) == 1:
            return gemv(x, weight.weight, bias, weight.one)
        return linear(x, weight.weight, bias)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See Ops."""
        return norm.rms_norm(x, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops. Overwrites both."""
        return norm.add_rms_norm(x, residual, weight, eps)

    def rope_and_store(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
        """See Ops."""
        return rope.rope_and_store(q, k, v, target)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See Ops."""
        return activation.silu_mul(gate_up)

    def norm_linear(
        self,
        x: torch.Tensor | None,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        eps: float,
        weight: PackedLinear,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops."""
        if weight.normed is None or residual.shape[0] != _GEMV_ROWS:
            return super().norm_linear(x, residual, norm_weight, eps, weight, bias)
        return norm_gemv(x, residual, norm_weight, eps, weight.weight, bias, weight.normed, is_gated=False)

    def norm_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: PackedLinear
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Ops."""
        if gate_up.gated is None or residual.shape[0] != _GEMV_ROWS:
            return super().norm_gated(x, residual, norm_weight, eps, gate_up)
        return norm_gemv(x, residual, norm_weight, eps, gate_up.weight, None, gate_up.gated, is_gated=True)
