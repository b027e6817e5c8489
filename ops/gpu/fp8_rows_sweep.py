"""One row by 8-bit weights, and the rounding of many rows, on one CUDA device: `python3 -m ops.gpu.fp8_rows_sweep`.

For each weight of two models: all sensible cuts of `fp8_gemv`, the one that is chosen, and one read of the weight. Then the
gate of the feed-forward and the rounding behind it, as one kernel and as two.
"""

from __future__ import annotations

import itertools
import sys

import torch

from gpu_workers.cuda.fp8_weights import quantise_rows
from gpu_workers.cuda.kernels.activation import silu_mul
from gpu_workers.cuda.kernels.fp8_gemv import fp8_gemv, fp8_gemv_shape
from gpu_workers.cuda.kernels.fp8_rows import quantise, silu_mul_quantise
from gpu_workers.cuda.kernels.gemv import GemvShape
from ops.gpu.model_steps import DEVICE, DTYPE
from ops.gpu.timing import graph_time_ms

_WEIGHTS = (
    (6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336), (960, 576), (576, 576), (3072, 576), (576, 1536),
)  # fmt: skip
_CUTS = tuple(
    GemvShape(rows, block, warps)
    for rows, block, warps in itertools.product((1, 2, 4), (1024, 2048, 4096, 8192), (2, 4, 8))
    if 16 <= rows * block // (32 * warps) <= 128  # numbers of a thread
)
_CACHE_BYTES = 1.5e8  # weights of one timed graph: more than the L2 cache holds
_BEST = 4


def sweep_gemv(n_out: int, width: int) -> None:
    """Prints the fastest cuts of one product."""
    copies = max(1, min(60, int(_CACHE_BYTES / (n_out * width))))
    weights = [quantise_rows(torch.randn(n_out, width, device=DEVICE)) for _ in range(copies)]
    pairs = [(numbers, scales[:, 0].contiguous()) for numbers, scales in weights]
    x = torch.randn(1, width, device=DEVICE, dtype=DTYPE)

    def time_us(shape: GemvShape) -> float:
        return graph_time_ms(lambda: [fp8_gemv(x, *pair, None, shape) for pair in pairs], 6) / copies * 1e3

    read_us = graph_time_ms(lambda: [numbers.view(torch.int64).amax() for numbers, _ in pairs], 6) / copies * 1e3
    chosen = fp8_gemv_shape(n_out, width)
    assert chosen is not None
    times = sorted((time_us(cut), str(cut)) for cut in _CUTS if cut.k_block < 2 * width and n_out % cut.rows == 0)
    print(f"fp8_gemv {n_out} x {width}: read {read_us:.2f} us, chosen {time_us(chosen):.2f} {chosen}", flush=True)
    for took_us, cut in times[:_BEST]:
        print(f"    {took_us:.2f} us {cut}", flush=True)


def time_gate(n_rows: int, n: int) -> None:
    """Prints the gate and the rounding of [n_rows, 2 n], together and apart."""
    gate_ups = [torch.randn(n_rows, 2 * n, device=DEVICE, dtype=DTYPE) for _ in range(8)]
    together = graph_time_ms(lambda: [silu_mul_quantise(x) for x in gate_ups], 6) / len(gate_ups) * 1e3
    apart = graph_time_ms(lambda: [quantise(silu_mul(x)) for x in gate_ups], 6) / len(gate_ups) * 1e3
    print(f"gate and rounding of {n_rows} x {n}: together {together:.2f} us, apart {apart:.2f}", flush=True)


def main() -> int:
    """All of it."""
    for weight in _WEIGHTS:
        sweep_gemv(*weight)
    for n_rows, n in ((129, 14_336), (256, 14_336), (2048, 14_336), (256, 1536)):
        time_gate(n_rows, n)
    return 0


if __name__ == "__main__":
    sys.exit(main())
