"""The operations of a decoder layer on CUDA devices: one Triton kernel each, and matrix products by cuBLAS or, for up to 128
rows, by our own kernels where they are faster. All of them can be captured in a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import linear

from gpu_workers.cuda.kernels import activation, norm, rope
from gpu_workers.cuda.kernels.few_rows import few_rows_product, takes_few_rows
from gpu_workers.cuda.kernels.few_rows_shapes import MOST_ROWS, FewRowsShape, few_rows_shape
from gpu_workers.cuda.kernels.gemv import GemvShape, gemv, gemv_shape
from gpu_workers.cuda.kernels.norm_gemv import norm_gemv, norm_gemv_shape
from gpu_workers.layers.torch_ops import KvTarget, Ops

ONE_ROW = 1  # with two rows registers spill on wide outputs and cuBLAS is faster


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

    def __init__(self) -> None:
        self._weights: set[tuple[int, int]] = set()  # rows and columns of all weights of 16-bit numbers

    def linear_weight(self, packed: torch.Tensor) -> PackedLinear:
        """packed [out, in] of any float dtype -> the same weight with the kernels that are chosen for its shape."""
        if packed.dtype not in (torch.bfloat16, torch.float16) or packed.stride(-1) != 1:
            return PackedLinear(packed, None, None, None)
        n_out, width = packed.shape
        self._weights.add((n_out, width))
        normed, gated = (norm_gemv_shape(n_out, width, is_gated) for is_gated in (False, True))
        return PackedLinear(packed, gemv_shape(n_out, width), normed, gated)

    def linear(self, x: torch.Tensor, weight: PackedLinear, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias, by our kernel for one row or few, else by cuBLAS."""
        if weight.one is not None and x.shape[0] == ONE_ROW and x.stride(-1) == 1:
            return gemv(x, weight.weight, bias, weight.one)
        shape = _few_rows_shape(x, weight.weight, is_gated=False)
        return linear(x, weight.weight, bias) if shape is None else few_rows_product(x, weight.weight, bias, shape)

    def token_counts(self, most_tokens: int) -> list[int]:
        """For each combination of kernels of all products the smallest number of tokens that launches it."""
        least: dict[tuple[FewRowsShape | None, ...], int] = {}
        for n in range(2, min(most_tokens, MOST_ROWS) + 1):
            shapes = (few_rows_shape(n, *weight, is_gated=gated) for weight in sorted(self._weights) for gated in (False, True))
            least.setdefault(tuple(shapes), n)
        return list(least.values())

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [..., n], weight [n] -> a new [..., n], in one kernel."""
        return norm.rms_norm(x, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual [T, n] -> (rms_norm(x + residual), x + residual), in one kernel. Overwrites both."""
        return norm.add_rms_norm(x, residual, weight, eps)

    def rope_and_store(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: KvTarget) -> torch.Tensor:
        """Rotates q and k and writes k and v to their pages, in one kernel; shapes as in `Ops.rope_and_store`."""
        return rope.rope_and_store(q, k, v, target)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [T, 2 n] -> a new [T, n], in one kernel."""
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
        """One kernel for one row, otherwise the norm and then the product. Shapes as in `Ops.norm_linear`."""
        if weight.normed is None or residual.shape[0] != ONE_ROW:
            return super().norm_linear(x, residual, norm_weight, eps, weight, bias)
        return norm_gemv(x, residual, norm_weight, eps, weight.weight, bias, weight.normed, is_gated=False)

    def norm_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: PackedLinear
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One kernel for one row; for few rows the gate is part of the product, otherwise it is the third kernel. Shapes as in
        `Ops.norm_gated`."""
        if residual.shape[0] != ONE_ROW:
            return self._many_rows_gated(x, residual, norm_weight, eps, gate_up)
        if gate_up.gated is None:
            return super().norm_gated(x, residual, norm_weight, eps, gate_up)
        return norm_gemv(x, residual, norm_weight, eps, gate_up.weight, None, gate_up.gated, is_gated=True)

    def _many_rows_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: PackedLinear
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed, residual = self.add_rms_norm(x, residual, norm_weight, eps)
        shape = _few_rows_shape(normed, gate_up.weight, is_gated=True)
        if shape is None:
            return self.silu_mul(self.linear(normed, gate_up, None)), residual
        return few_rows_product(normed, gate_up.weight, None, shape, is_gated=True), residual


def _few_rows_shape(x: torch.Tensor, weight: torch.Tensor, *, is_gated: bool) -> FewRowsShape | None:
    """The cut of our kernel for this product; None if cuBLAS is to take it."""
    shape = few_rows_shape(len(x), *weight.shape, is_gated=is_gated)
    return shape if shape is not None and takes_few_rows(x, weight) else None
