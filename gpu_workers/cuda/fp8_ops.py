"""The operations of a decoder layer on CUDA devices with weights of 8-bit floating-point numbers; see `fp8_weights`.

One row is multiplied as it is, since its product is bound by the bytes of the weight. More rows become 8-bit numbers too, with
a scale for each row, so that tensor cores multiply them at twice the speed. The head keeps the model's dtype: rounding it costs
more quality than all layers together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gpu_workers.cuda import fp8_weights
from gpu_workers.cuda.kernels.few_rows import ProductScales, few_rows_product, takes_few_rows
from gpu_workers.cuda.kernels.few_rows_shapes import MOST_ROWS, FewRowsShape, fp8_rows_shape
from gpu_workers.cuda.kernels.fp8_gemv import fp8_gemv, fp8_gemv_shape
from gpu_workers.cuda.kernels.fp8_rows import add_norm_quantise, quantise, silu_mul_quantise
from gpu_workers.cuda.kernels.gemv import GemvShape
from gpu_workers.cuda.kernels.norm_gemv import norm_gemv, norm_gemv_shape
from gpu_workers.cuda.ops import ONE_ROW, CudaOps
from gpu_workers.layers.quantized.stored_weight import StoredWeight


@dataclass(frozen=True)
class Fp8Linear:
    """A weight [out, in] of 8-bit numbers, the scales of its rows, and the shapes of kernels, as in `PackedLinear`."""

    numbers: torch.Tensor  # [out, in] e4m3
    scales: torch.Tensor  # [out] float32
    one: GemvShape | None
    normed: GemvShape | None
    gated: GemvShape | None


Rows = tuple[torch.Tensor, torch.Tensor]  # numbers [T, in] e4m3 and scales [T, 1] float32


class Fp8CudaOps(CudaOps):
    """`CudaOps` for a bfloat16 model whose layers have 8-bit weights. A weight with a side that is no multiple of 16 is
    left alone."""

    takes_stored = True

    def __init__(self) -> None:
        super().__init__()
        self._fp8_weights: set[tuple[int, int]] = set()  # rows and columns

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """weight [out, in] -> its 8-bit form, uint8 [`fp8_weights.packed_size(out, in)`]; the weight itself if it does not
        fit."""
        return fp8_weights.pack(weight) if fp8_weights.fits_fp8(*weight.shape) else weight

    def pack_stored(self, stored: StoredWeight) -> torch.Tensor | None:
        """8-bit floats of a checkpoint with one scale for each row, or for all of them, as they are; None for others."""
        return fp8_weights.pack_stored(stored)

    def pack_head(self, weight: torch.Tensor) -> torch.Tensor:
        """Returns the weight itself: the head keeps its dtype."""
        return weight

    def linear_weight(self, packed: torch.Tensor) -> Any:
        """packed, from `pack` -> an Fp8Linear, or what `CudaOps` makes of a weight that has kept its dtype. On the device
        "meta" the same tensor, with which nothing multiplies."""
        if packed.is_meta:
            return packed
        if packed.dtype != torch.uint8:
            return super().linear_weight(packed)
        weight = fp8_weights.unpack(packed)
        n_out, width = weight.numbers.shape
        self._fp8_weights.add((n_out, width))
        normed, gated = (norm_gemv_shape(n_out, width, is_gated) for is_gated in (False, True))
        return Fp8Linear(weight.numbers, weight.scales, fp8_gemv_shape(n_out, width), normed, gated)

    def token_counts(self, most_tokens: int) -> list[int]:
        """The counts of `CudaOps`, and the smallest number of tokens for each combination of cuts of 8-bit products."""
        counts = set(super().token_counts(most_tokens))
        cuts: dict[tuple[FewRowsShape | None, ...], int] = {}
        for n in range(2, min(most_tokens, MOST_ROWS) + 1):
            sizes = ((size, gated) for size in sorted(self._fp8_weights) for gated in (False, True))
            cuts.setdefault(tuple(fp8_rows_shape(n, *size, is_gated=gated) for size, gated in sizes), n)
        return sorted(counts | set(cuts.values()))

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        """x [T, in] -> [T, out]: x @ weight.T + bias. weight: from `linear_weight`."""
        if not isinstance(weight, Fp8Linear):
            return super().linear(x, weight, bias)
        x = x if x.stride(-1) == 1 else x.contiguous()
        if weight.one is not None and len(x) == ONE_ROW:
            return fp8_gemv(x, weight.numbers, weight.scales, bias, weight.one)
        return _product(quantise(x), weight, bias, x.dtype)

    def norm_linear(
        self,
        x: torch.Tensor | None,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        eps: float,
        weight: Any,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One kernel for one row; for more rows the norm also quantises, then comes the product. Shapes as in
        `Ops.norm_linear`."""
        if not isinstance(weight, Fp8Linear):
            return super().norm_linear(x, residual, norm_weight, eps, weight, bias)
        if len(residual) == ONE_ROW and weight.normed is not None:
            return norm_gemv(x, residual, norm_weight, eps, weight.numbers, bias, weight.normed, weight.scales, is_gated=False)
        if x is None or len(residual) == ONE_ROW:
            return self._norm_then_linear(x, residual, norm_weight, eps, weight, bias)
        rows = add_norm_quantise(x, residual, norm_weight, eps)
        return _product(rows, weight, bias, residual.dtype), residual

    def norm_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One kernel for one row; for few rows the gate is part of the product, otherwise it is the third kernel. Shapes as in
        `Ops.norm_gated`."""
        if not isinstance(gate_up, Fp8Linear):
            return super().norm_gated(x, residual, norm_weight, eps, gate_up)
        if len(residual) == ONE_ROW:
            return self._one_row_gated(x, residual, norm_weight, eps, gate_up)
        rows = add_norm_quantise(x, residual, norm_weight, eps)
        shape = fp8_rows_shape(len(residual), *gate_up.numbers.shape, is_gated=True)
        if shape is None or not takes_few_rows(rows[0], gate_up.numbers):
            return self.silu_mul(_product(rows, gate_up, None, residual.dtype)), residual
        scales = ProductScales(rows[1], gate_up.scales, residual.dtype)
        return few_rows_product(rows[0], gate_up.numbers, None, shape, scales, is_gated=True), residual

    def feed_forward(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: Any, down: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As in Ops. Where neither product is one of few rows, the kernel of the gate rounds its result."""
        is_fp8 = isinstance(gate_up, Fp8Linear) and isinstance(down, Fp8Linear)
        if not is_fp8 or len(residual) <= MOST_ROWS:
            return super().feed_forward(x, residual, norm_weight, eps, gate_up, down)
        dtype = residual.dtype
        gate_and_up = _product(add_norm_quantise(x, residual, norm_weight, eps), gate_up, None, dtype)
        return _product(silu_mul_quantise(gate_and_up), down, None, dtype), residual

    def _norm_then_linear(
        self,
        x: torch.Tensor | None,
        residual: torch.Tensor,
        norm_weight: torch.Tensor,
        eps: float,
        weight: Fp8Linear,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if x is None:
            return self.linear(self.rms_norm(residual, norm_weight, eps), weight, bias), residual
        normed, residual = self.add_rms_norm(x, residual, norm_weight, eps)
        return self.linear(normed, weight, bias), residual

    def _one_row_gated(
        self, x: torch.Tensor, residual: torch.Tensor, norm_weight: torch.Tensor, eps: float, gate_up: Fp8Linear
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if gate_up.gated is not None:
            shape, scales = gate_up.gated, gate_up.scales
            return norm_gemv(x, residual, norm_weight, eps, gate_up.numbers, None, shape, scales, is_gated=True)
        projected, residual = self.norm_linear(x, residual, norm_weight, eps, gate_up, None)
        return self.silu_mul(projected), residual


def _product(rows: Rows, weight: Fp8Linear, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """rows [T, in] @ weight [out, in].T + bias [out] -> a new [T, out] of `dtype`."""
    numbers, scales = rows
    shape = fp8_rows_shape(len(numbers), *weight.numbers.shape, is_gated=False)
    if shape is not None and takes_few_rows(numbers, weight.numbers):
        return few_rows_product(numbers, weight.numbers, bias, shape, ProductScales(scales, weight.scales, dtype))
    # one scale for each row of both sides: torch calls cuBLAS or CUTLASS, whichever has it in its version
    return torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
        numbers, weight.numbers.t(), scales, weight.scales[None], bias=bias, out_dtype=dtype, use_fast_accum=True
    )
