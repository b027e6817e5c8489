"""Times the cuts of attention with a fixed order of additions for rows of one token, and compares their bits with today's."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_workers.cuda.deterministic import DeterministicTritonAttention
from gpu_workers.cuda.kernels.attention.paged_fixed import FIXED_SHAPE, paged_fixed
from gpu_workers.cuda.kernels.attention.tiles import TileShape
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.kv_pages import KvShape
from ops.gpu.timing import graph_time_ms
from tests.support.workers.kernels.attention_checks import make_step
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES
from tests.support.workers.kernels.page_checks import random_pages

_CASES = tuple((name, rows, 225) for name in ("smollm2", "llama-8b") for rows in (1, 64, 256))
_CUTS = (
    FIXED_SHAPE, TileShape(64, 64, 4, 2), TileShape(64, 64, 4, 4), TileShape(16, 64, 1, 3), TileShape(16, 64, 1, 4),
    TileShape(16, 64, 2, 3), TileShape(32, 64, 2, 3), TileShape(64, 128, 4, 2), TileShape(64, 32, 4, 4),
)  # fmt: skip
_LAYERS = 8


def sweep_attention(device: torch.device, dtype: torch.dtype) -> None:
    """Prints a line for each case: microseconds of the fast kernels, and of each cut, with `=` where its bits are today's."""
    for case in _CASES:
        _sweep(*case, device, dtype)


@torch.inference_mode()
def _sweep(name: str, rows: int, context: int, device: torch.device, dtype: torch.dtype) -> None:
    n_heads, n_kv_heads, dim = HEAD_SHAPES[name]
    step, n_pages = make_step([(context - 1, 1)] * rows, rows, device)
    kv = random_pages(KvShape(_LAYERS, n_kv_heads, dim, dtype), n_pages, device)
    layers = list(zip(kv.keys, kv.values, strict=True))
    q = torch.randn((rows, n_heads, dim), device=device, dtype=dtype)
    fast = TritonAttention(n_heads, n_kv_heads, dim, dtype).prepare(step)
    fixed = DeterministicTritonAttention(n_heads, n_kv_heads, dim, dtype).prepare(step)

    def us_of(run: Callable[[torch.Tensor, torch.Tensor], object]) -> float:
        return graph_time_ms(lambda: [run(k, v) for k, v in layers], 5) / _LAYERS * 1e3

    times = [f"without {us_of(lambda k, v: fast.attend(q, k, v, dim**-0.5)):.2f} us"]
    expected = fixed.attend(q, *layers[0], dim**-0.5)
    for cut in _CUTS:
        out = torch.empty_like(q)

        def attend(k: torch.Tensor, v: torch.Tensor, cut: TileShape = cut, out: torch.Tensor = out) -> None:
            paged_fixed(q, k, v, fixed.page_table, fixed.single, out, dim**-0.5, cut, fixed.n_splits)

        try:
            attend(*layers[0])
            mark = "=" if out.equal(expected) else "other bits"
            times.append(f"{tuple(vars(cut).values())} {us_of(attend):.2f} {mark}")
        except Exception as error:  # a cut that does not fit the device is a result as well
            times.append(f"{tuple(vars(cut).values())} {repr(error)[:60]}")
    print(f"attention {name}, {rows} rows of {context} keys (pairs, keys, warps, stages): {'; '.join(times)}", flush=True)
