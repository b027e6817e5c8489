"""Addition, norm and product of 2 to 64 rows in one kernel, beside the two kernels that serve: is it worth a place there?

    python3 -m ops.gpu.norm_few_rows_trial [check] [kernels] [steps]

A step of a narrow model is a chain of short kernels, so one kernel less for each product after a norm may be worth more than
the work that its programs do twice. `check` compares results, `kernels` times the products of SmolLM2-135M and Qwen3-0.6B,
`steps` times whole captured steps, and with weights that are asked for before a kernel may begin.
"""

# pyright: reportIndexIssue=false, reportMissingImports=false
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_workers.cuda import ops as cuda_ops
from gpu_workers.cuda.kernels.activation import silu_times
from gpu_workers.cuda.kernels.few_rows import few_rows_product
from gpu_workers.cuda.kernels.few_rows_shapes import FewRowsShape, few_rows_shape
from gpu_workers.cuda.kernels.launch import LATE_WIDTH, dependent_launch
from gpu_workers.cuda.kernels.norm import add_rms_norm
from gpu_workers.cuda.kernels.prefetch import prefetch_rows
from gpu_workers.cuda.ops import CudaOps, PackedLinear
from gpu_workers.graphs.cuda_graphs import StepGraphs
from gpu_workers.layers.kv_pages import KvPages
from ops.gpu.model_steps import CONTEXT_TOKENS, DEVICE, DTYPE, build, make_state
from ops.gpu.timing import graph_time_ms, replay_time_ms

Pair = tuple[torch.Tensor, torch.Tensor]
PRODUCTS = {
    "smollm2-135m": [(960, 576, False), (3072, 576, True)],
    "qwen3-0.6b": [(4096, 1024, False), (6144, 1024, True)],
}
ROWS = (2, 8, 16, 32, 64)
_CACHE_BYTES = 1.5e8  # weights of one timed graph: more than the L2 cache holds


@triton.jit
def _multiply(w, x, total, SWAPPED: tl.constexpr):
    return tl.dot(w, x.T, total) if SWAPPED else tl.dot(x, w.T, total)


@triton.jit(do_not_specialize=["n_rows"])
def _kernel(
    X, RESIDUAL, NORM, W, WEIGHT, Y, NEW_RESIDUAL, n_rows, n_out, K, eps, stride_w,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr, SWAPPED: tl.constexpr,
    GATED: tl.constexpr, PREFETCH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """X, RESIDUAL, NORM, W: descriptors of blocks [BM, BK], [BM, BK], [1, BK], [BN, BK]. t = X + RESIDUAL;
    Y = (t * NORM) @ W.T / rms(t), or gated. The first programs keep t as NEW_RESIDUAL, a block each."""
    first = tl.program_id(0) * BN
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        if PREFETCH > 0:
            weight_row = tl.minimum(first + tl.arange(0, BN), n_out - 1)
            prefetch_rows(WEIGHT, weight_row, 0, K, stride_w, PREFETCH)
            if GATED:
                prefetch_rows(WEIGHT, n_out + weight_row, 0, K, stride_w, PREFETCH)
        tl.extra.cuda.gdc_wait()
    row, column = tl.arange(0, BM), tl.arange(0, BK)
    squares = tl.zeros([BM, BK], tl.float32)
    total = tl.zeros([BN, BM] if SWAPPED else [BM, BN], tl.float32)
    gated = tl.zeros([BN, BM] if SWAPPED else [BM, BN], tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES):
        x, r, scale = X.load([0, k]), RESIDUAL.load([0, k]), NORM.load([0, k])
        t = (x.to(tl.float32) + r.to(tl.float32)).to(Y.dtype.element_ty)
        is_kept = (row < n_rows)[:, None] & (k + column < K)[None, :] & (k == tl.program_id(0) * BK)
        tl.store(NEW_RESIDUAL + row[:, None] * K + (k + column)[None, :], t, mask=is_kept)
        t = t.to(tl.float32)
        squares += t * t
        scaled = (t * scale.to(tl.float32)).to(Y.dtype.element_ty)
        total = _multiply(W.load([first, k]), scaled, total, SWAPPED)
        if GATED:
            gated = _multiply(W.load([n_out + first, k]), scaled, gated, SWAPPED)
    factor = tl.rsqrt(tl.sum(squares, 1) / K + eps)
    out = first + tl.arange(0, BN)
    if SWAPPED:
        total, gated = total * factor[None, :], gated * factor[None, :]
        y_at, is_there = row[None, :] * n_out + out[:, None], (row < n_rows)[None, :] & (out < n_out)[:, None]
    else:
        total, gated = total * factor[:, None], gated * factor[:, None]
        y_at, is_there = row[:, None] * n_out + out[None, :], (row < n_rows)[:, None] & (out < n_out)[None, :]
    if GATED:
        dtype = Y.dtype.element_ty  # rounded as if they had been stored
        total = silu_times(total.to(dtype).to(tl.float32), gated.to(dtype).to(tl.float32))
    tl.store(Y + y_at, total.to(Y.dtype.element_ty), mask=is_there)


def norm_few_rows(
    x: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, shape: FewRowsShape,
    *, is_gated: bool,
) -> Pair:  # fmt: skip
    """x, residual [T, K], norm [K], weight [N, K] -> (y [T, N], or gated [T, N / 2]; x + residual), both new."""
    n_rows, width = x.shape
    n_out = weight.shape[0] // 2 if is_gated else weight.shape[0]
    out = torch.empty((n_rows, n_out), dtype=x.dtype, device=x.device)
    kept = torch.empty_like(residual)
    pdl = dependent_launch(x.device)
    _kernel[(triton.cdiv(n_out, shape.outs),)](
        *(TensorDescriptor.from_tensor(rows, [shape.rows, shape.k_block]) for rows in (x, residual)),
        TensorDescriptor.from_tensor(norm[None], [1, shape.k_block]),
        TensorDescriptor.from_tensor(weight, [shape.outs, shape.k_block]), weight, out, kept,
        n_rows, n_out, width, eps, weight.stride(0),
        BM=shape.rows, BN=shape.outs, BK=shape.k_block, STAGES=shape.stages, SWAPPED=shape.is_swapped, GATED=is_gated,
        PREFETCH=shape.prefetch, PDL=pdl, num_warps=4, num_stages=shape.stages, launch_pdl=pdl,
    )  # fmt: skip
    return out, kept


def separate(
    x: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float, weight: torch.Tensor, shape: FewRowsShape,
    *, is_gated: bool,
) -> Pair:  # fmt: skip
    """The same by the two kernels that serve. Overwrites x and residual."""
    normed, kept = add_rms_norm(x, residual, norm, eps)
    return few_rows_product(normed, weight, None, shape, is_gated=is_gated), kept


def cuts(n_rows: int, n_out: int, is_gated: bool) -> list[FewRowsShape]:
    """The cuts worth timing: those whose tensor core instruction has a side of 64, in shared memory that a device has."""
    rows = max(16, 1 << (n_rows - 1).bit_length())
    found = []
    for outs, k_block, stages, swapped, lines in itertools.product((16, 32, 64), (64, 128), (3, 4), (True, False), (0, 8)):
        fits = (rows + outs * (2 if is_gated else 1)) * k_block * 2 * stages <= 200_000
        if fits and (outs if swapped else rows) >= 64 and n_out >= outs:
            found.append(FewRowsShape(rows, outs, k_block, stages, swapped, lines))
    return found


def check() -> None:
    """Both forms beside float64."""
    for n_out, width, is_gated in (product for products in PRODUCTS.values() for product in products):
        worst = 0.0
        for n_rows in (2, 3, 8, 17, 33, 64):
            x, residual = (torch.randn(n_rows, width, device=DEVICE, dtype=DTYPE) for _ in range(2))
            norm = torch.randn(width, device=DEVICE, dtype=DTYPE)
            weight = torch.randn(n_out, width, device=DEVICE, dtype=DTYPE) / width**0.5
            t = (x + residual).double()
            normed = t * torch.rsqrt(t.square().mean(1, keepdim=True) + 1e-5) * norm.double()
            y = normed @ weight.double().T
            if is_gated:
                gate, up = y.chunk(2, 1)
                y = gate * torch.sigmoid(gate) * up
            for shape in cuts(n_rows, n_out // 2 if is_gated else n_out, is_gated):
                got, kept = norm_few_rows(x, residual, norm, 1e-5, weight, shape, is_gated=is_gated)
                assert torch.equal(kept, x + residual), shape
                worst = max(worst, float((got.double() - y).norm() / y.norm()))
        print(f"{n_out} x {width}: relative error at most {worst:.4f} (a rounding to bfloat16 is 0.002 to 0.004)", flush=True)


def _time_us(n_rows: int, product: tuple[int, int, bool], form: Callable[..., Pair], shape: FewRowsShape) -> float:
    n_out, width, is_gated = product
    copies = int(min(64, max(2, _CACHE_BYTES // (n_out * width * 2) + 1)))
    weights = torch.randn(copies, n_out, width, device=DEVICE, dtype=DTYPE)
    x, residual = (torch.randn(n_rows, width, device=DEVICE, dtype=DTYPE) for _ in range(2))
    norm = torch.ones(width, device=DEVICE, dtype=DTYPE)
    run = partial(form, x, residual, norm, 1e-5, shape=shape, is_gated=is_gated)
    return graph_time_ms(lambda: [run(weight=weight) for weight in weights], 5) / copies * 1e3


def time_kernels() -> None:
    """The pair of kernels that serves, with and without early weights, and the best cuts of the one kernel."""
    for name, products in PRODUCTS.items():
        for product, n_rows in itertools.product(products, ROWS):
            n_out, width, is_gated = product
            served = few_rows_shape(n_rows, n_out, width, is_gated=is_gated)
            line = f"{name} {product} {n_rows} rows:"
            for lines in (0, 8):
                if served is not None:
                    took_us = _time_us(n_rows, product, separate, replace(served, prefetch=lines))
                    line += f" two kernels, {lines} lines {took_us:.2f};"
            found = sorted(
                (_time_us(n_rows, product, norm_few_rows, shape), str(shape))
                for shape in cuts(n_rows, n_out // 2 if is_gated else n_out, is_gated)
            )
            print(line, *(f"\n    one kernel {took_us:.2f} us {shape}" for took_us, shape in found[:3]), flush=True)


class _OneKernel(CudaOps):
    """CudaOps with one kernel for norm and product of narrow rows."""

    def norm_linear(self, x, residual, norm_weight, eps, weight: PackedLinear, bias):
        """See Ops."""
        n = len(residual)
        if x is None or bias is not None or not 2 <= n <= 64 or residual.shape[1] > LATE_WIDTH:
            return super().norm_linear(x, residual, norm_weight, eps, weight, bias)
        return norm_few_rows(x, residual, norm_weight, eps, weight.weight, _step_shape(n, is_gated=False), is_gated=False)

    def norm_gated(self, x, residual, norm_weight, eps, gate_up: PackedLinear):
        """See Ops."""
        n = len(residual)
        if not 2 <= n <= 64 or residual.shape[1] > LATE_WIDTH:
            return super().norm_gated(x, residual, norm_weight, eps, gate_up)
        return norm_few_rows(x, residual, norm_weight, eps, gate_up.weight, _step_shape(n, is_gated=True), is_gated=True)


def _step_shape(n_rows: int, *, is_gated: bool) -> FewRowsShape:
    """To be replaced by what `kernels` finds."""
    if n_rows > 32:
        return FewRowsShape(64, 32 if is_gated else 16, 64, 4, False)
    return FewRowsShape(16 if n_rows <= 16 else 32, 64, 64, 4, True)


def time_steps() -> None:
    """Whole steps: as served, with early weights, with one kernel for norm and product, with both; in turns."""

    def early(*args: object, **options: object) -> FewRowsShape | None:
        shape = few_rows_shape(*args, **options)  # pyright: ignore[reportArgumentType]
        return shape and replace(shape, prefetch=8)

    forms = {"served": (CudaOps, few_rows_shape), "early": (CudaOps, early), "one kernel": (_OneKernel, few_rows_shape)}
    for name in ("smollm2-135m", "qwen3-0.6b", "llama-8b"):
        graphs = {form: _captured(name, *choice) for form, choice in forms.items()}
        for _, (form, (captured, _model)) in itertools.product(range(3), graphs.items()):
            print(f"{name} {form}: {', '.join(f'{n}: {_step_ms(captured, n):.4f}' for n in ROWS)} ms", flush=True)


def _captured(name: str, kind: type[CudaOps], rule: Callable[..., FewRowsShape | None]) -> tuple[StepGraphs, object]:
    with patch("gpu_workers.runner.cuda_backend.CudaOps", kind), patch.object(cuda_ops, "few_rows_shape", rule):
        model = build(name)
        state, n_pages = make_state(max(ROWS), CONTEXT_TOKENS + 64)
        kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
        kv.storage.normal_()
        graphs = StepGraphs(state, lambda step: model.logits(model.forward(step, kv)), decode_sizes=ROWS)
        graphs.capture()
    return graphs, (model, kv)


def _step_ms(graphs: StepGraphs, n: int) -> float:
    slots, positions = np.arange(n), np.full(n, CONTEXT_TOKENS)
    return replay_time_ms(lambda: graphs.decode.run(slots, positions, 8, lambda index: None), 8) / 8


SECTIONS: dict[str, Callable[[], None]] = {"check": check, "kernels": time_kernels, "steps": time_steps}


def main(names: list[str]) -> int:
    """Returns the exit status."""
    for name in names or SECTIONS:
        SECTIONS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
