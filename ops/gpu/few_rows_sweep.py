"""Products of a few rows beside cuBLAS on one CUDA device: `python3 -m ops.gpu.few_rows_sweep [cuts] [rules] [steps]`.

`cuts` times all sensible cuts of the products of two models and prints the fastest. `rules` times the cuts that
`few_rows_shapes` chooses for the weights of nine models, and marks those that cuBLAS beats. `steps` times whole captured steps
with these kernels and without.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
from torch.nn.functional import linear

from gpu_workers.cuda import ops as cuda_ops
from gpu_workers.cuda.kernels.activation import silu_mul
from gpu_workers.cuda.kernels.few_rows import few_rows_product
from gpu_workers.cuda.kernels.few_rows_shapes import FewRowsShape, few_rows_shape
from gpu_workers.graphs.cuda_graphs import StepGraphs
from gpu_workers.layers.kv_pages import KvPages
from ops.gpu.model_steps import CONTEXT_TOKENS, DEVICE, DTYPE, build, make_state
from ops.gpu.timing import graph_time_ms, replay_time_ms

Weight = tuple[int, int, bool]  # outputs, inputs, whether the gate follows
SWEPT: dict[str, list[Weight]] = {
    "llama-8b": [(6144, 4096, False), (4096, 4096, False), (28_672, 4096, True), (4096, 14_336, False), (128_256, 4096, False)],
    "smollm2-135m": [(960, 576, False), (576, 576, False), (3072, 576, True), (576, 1536, False), (49_152, 576, False)],
}
OTHERS: dict[str, list[Weight]] = {
    "qwen3-0.6b": [
        (4096, 1024, False), (1024, 2048, False), (6144, 1024, True), (1024, 3072, False), (151_936, 1024, False),
    ],
    "llama-1b": [(3072, 2048, False), (2048, 2048, False), (16_384, 2048, True), (2048, 8192, False), (128_256, 2048, False)],
    "llama-3b": [(5120, 3072, False), (3072, 3072, False), (16_384, 3072, True), (3072, 8192, False)],
    "qwen-14b": [(7168, 5120, False), (5120, 5120, False), (34_816, 5120, True), (5120, 17_408, False)],
    "llama-8b tp 2": [
        (3072, 4096, False), (4096, 2048, False), (14_336, 4096, True), (4096, 7168, False), (64_128, 4096, False),
    ],
    "llama-70b tp 4": [
        (2560, 8192, False), (8192, 2048, False), (14_336, 8192, True), (8192, 7168, False), (32_064, 8192, False),
    ],
    "qwen-32b tp 2": [(4608, 5120, False), (5120, 4096, False), (27_648, 5120, True), (5120, 13_824, False)],
}  # fmt: skip
_SHARED_BYTES, _LEAST_SHARED_BYTES, _ACCUMULATORS = 220_000, 40_000, 128 * 128
_CACHE_BYTES = 1.5e8  # weights of one timed graph: more than the L2 cache holds
_BEST = 3


def sweep_cuts() -> None:
    """The fastest cuts of each product."""
    jobs = {
        (shape, gated)
        for w in SWEPT.values()
        for n_out, width, gated in w
        for m in (16, 32, 64, 128)
        for shape in cuts(m, n_out, width, gated)
    }
    with multiprocessing.get_context("spawn").Pool(max(1, (os.cpu_count() or 2) - 2)) as pool:
        pool.map(_compile, jobs, chunksize=4)
    for name, (n_out, width, gated) in ((name, weight) for name, weights in SWEPT.items() for weight in weights):
        for n_rows in (8, 32, 64, 128):
            ours = partial(_time_us, n_rows, n_out, width)
            times = sorted((ours(partial(_ours, shape, gated)), str(shape)) for shape in cuts(n_rows, n_out, width, gated))
            print(f"{name} {n_out} x {width}, {n_rows} rows: cuBLAS {ours(partial(_cublas, gated)):.2f} us", flush=True)
            for took_us, shape in times[:_BEST]:
                print(f"    {took_us:.2f} us {shape}", flush=True)


def check_rules() -> None:
    """The chosen cuts beside cuBLAS."""
    for name, weights in {**SWEPT, **OTHERS}.items():
        for n_out, width, gated in weights:
            found: list[str] = []
            for n_rows in (2, 8, 16, 24, 32, 40, 48, 64, 96, 128):
                shape = few_rows_shape(n_rows, n_out, width, is_gated=gated)
                if shape is None:
                    found.append(f"{n_rows}: -")
                    continue
                cublas_us = _time_us(n_rows, n_out, width, partial(_cublas, gated))
                took_us = _time_us(n_rows, n_out, width, partial(_ours, shape, gated))
                found.append(f"{n_rows}: {cublas_us:.1f} {took_us:.1f}{' SLOWER' if took_us > 1.02 * cublas_us else ''}")
            print(f"{name} {n_out} x {width}: {'; '.join(found)}", flush=True)


def time_steps() -> None:
    """Whole steps without and with our kernel, in turns."""
    sizes = (2, 8, 16, 32, 64, 128)
    for name in SWEPT:
        model = build(name)
        state, n_pages = make_state(max(sizes), CONTEXT_TOKENS + 64)
        kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
        kv.storage.normal_()

        def capture(rule: Callable[..., FewRowsShape | None]) -> StepGraphs:
            graphs = StepGraphs(state, lambda step: model.logits(model.forward(step, kv)), decode_sizes=sizes)  # noqa: B023
            with patch.object(cuda_ops, "few_rows_shape", rule):
                graphs.capture()
            return graphs

        both = {"cuBLAS": capture(lambda *_, **__: None), "few rows": capture(few_rows_shape)}
        for _, (form, graphs) in itertools.product(range(3), both.items()):
            print(f"{name} {form}: {', '.join(f'{n}: {_step_ms(graphs, n):.3f}' for n in sizes)} ms", flush=True)


def _step_ms(graphs: StepGraphs, n: int) -> float:
    slots, positions = np.arange(n), np.full(n, CONTEXT_TOKENS)
    return replay_time_ms(lambda: graphs.decode.run(slots, positions, 8, lambda index: None), 8) / 8


def cuts(n_rows: int, n_out: int, width: int, gated: bool) -> Iterator[FewRowsShape]:
    """The cuts worth timing."""
    rows, n_weights = max(16, 1 << (n_rows - 1).bit_length()), 2 if gated else 1
    for outs, k_block, swapped, stages in itertools.product((16, 32, 64, 128), (64, 128, 256), (True, False), (3, 4, 6, 8)):
        has_instruction = outs >= 64 if swapped else rows >= 64
        fits = _LEAST_SHARED_BYTES <= (rows + outs * n_weights) * k_block * 2 * stages <= _SHARED_BYTES
        is_idle = n_out // n_weights // outs < 60 and outs > 64
        is_short = width < 1024 and stages * k_block > 2 * width
        if has_instruction and fits and not is_idle and not is_short and rows * outs * n_weights <= _ACCUMULATORS:
            yield FewRowsShape(rows, outs, k_block, stages, swapped)


def _compile(job: tuple[FewRowsShape, bool]) -> None:
    shape, gated = job
    weight = torch.zeros(1024, 1024, device=DEVICE, dtype=DTYPE)
    few_rows_product(weight[: shape.rows], weight, None, shape, is_gated=gated)


def _ours(shape: FewRowsShape, gated: bool, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return few_rows_product(x, weight, None, shape, is_gated=gated)


def _cublas(gated: bool, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return silu_mul(linear(x, weight)) if gated else linear(x, weight)


def _time_us(n_rows: int, n_out: int, width: int, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> float:
    """Microseconds of one product inside a graph of several with weights that no cache holds."""
    copies = int(min(16, max(2, _CACHE_BYTES // (n_out * width * 2) + 1)))
    n = max(8, copies)
    weights = torch.randn(copies, n_out, width, device=DEVICE, dtype=DTYPE)
    x = torch.randn(n_rows, width, device=DEVICE, dtype=DTYPE)
    return graph_time_ms(lambda: [product(x, weights[i % copies]) for i in range(n)], 5) / n * 1e3


SECTIONS: dict[str, Callable[[], None]] = {"cuts": sweep_cuts, "rules": check_rules, "steps": time_steps}


def main(names: list[str]) -> int:
    """Returns the exit status."""
    for name in names or SECTIONS:
        began_s = time.monotonic()
        SECTIONS[name]()
        print(f"== {name}: {time.monotonic() - began_s:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
