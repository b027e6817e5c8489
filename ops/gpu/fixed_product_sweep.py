"""Times the cuts of products with a fixed order of additions on one CUDA device and prints those to choose.

    python3 -m ops.gpu.fixed_product_sweep [smollm2-135m] [llama-8b]

About 100 s on an H200 with 16 cores. For each weight, each number of segments and each number of rows all sensible cuts are
timed, and each cut is compared bit for bit with one reference of as many segments over 256 rows; a cut with other bits is not
chosen. Prints a line for each weight and number of rows, what is known of the tensor cores' instructions, times of attention,
and last the entries of `MEASURED` in gpu_workers/cuda/kernels/fixed_shapes.py, to be pasted there. Changing `segments` changes
bits, so a whole entry is taken or none of it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import linear

from gpu_workers.cuda.kernels.activation import silu_mul
from gpu_workers.cuda.kernels.fixed_product import fixed_product
from gpu_workers.cuda.kernels.fixed_shapes import ProductShape, product_shape
from gpu_workers.cuda.kernels.gemv import gemv, gemv_shape
from ops.gpu.fixed_attention_sweep import sweep_attention
from ops.gpu.fixed_product_cuts import ROW_COUNTS, cuts_of, every_cut, instruction_of, segment_choices, with_prefetch
from ops.gpu.timing import graph_time_ms

DEVICE, DTYPE = torch.device("cuda", 0), torch.bfloat16
_CHECKED_ROWS = 256
_CACHE_BYTES = 1.2e8  # weights of one timed graph: more than the L2 cache holds
_MOST_LAUNCHES = 16
_BEST = 4  # cuts that are timed again in another way
_END_S = 85.0  # after so long no further weight is begun
_BEGAN = time.monotonic()


@dataclass(frozen=True)
class Weight:
    """One weight of a model: its shape [n_out, width], and whether the gate follows."""

    name: str
    n_out: int
    width: int
    is_gated: bool = False


WEIGHTS = {
    "smollm2-135m": (
        Weight("qkv", 960, 576),
        Weight("output", 576, 576),
        Weight("gate and up", 3072, 576, is_gated=True),
        Weight("down", 576, 1536),
        Weight("head", 49_152, 576),
    ),
    "llama-8b": (
        Weight("qkv", 6144, 4096),
        Weight("output", 4096, 4096),
        Weight("gate and up", 28_672, 4096, is_gated=True),
        Weight("down", 4096, 14_336),
        Weight("head", 128_256, 4096),
    ),
}


@dataclass
class Chosen:
    """The fastest cuts of a weight with one number of segments, and the sum of the logarithms of their costs."""

    by_rows: dict[int, tuple[float, ProductShape]] = field(default_factory=dict[int, tuple[float, ProductShape]])
    score: float = 0.0


@dataclass
class Bits:
    """How many cuts gave the bits of the reference, and how many others, by the tensor cores' instruction."""

    equal: Counter[str] = field(default_factory=Counter[str])
    other: Counter[str] = field(default_factory=Counter[str])


def main(names: list[str]) -> int:
    """Returns the exit status."""
    names = names or list(WEIGHTS)
    compile_ahead([weight for name in names for weight in WEIGHTS[name]])
    bits, entries = Bits(), dict[tuple[int, int], str | None]()
    for name in names:
        for weight in WEIGHTS[name]:
            if time.monotonic() - _BEGAN > _END_S:
                print(f"{name} {weight.name}: left out, {_END_S:.0f} s are over", flush=True)
                continue
            entries[weight.n_out, weight.width] = sweep_weight(name, weight, bits)
            torch.cuda.empty_cache()
    for instruction in sorted(bits.equal | bits.other):
        equal, other = bits.equal[instruction], bits.other[instruction]
        print(f"{instruction}: {equal} cuts have the bits of the reference (wgmma, tiles of 64 x 64), {other} have others")
    sweep_attention(DEVICE, DTYPE)
    print(f"\ndone after {time.monotonic() - _BEGAN:.0f} s; MEASURED in gpu_workers/cuda/kernels/fixed_shapes.py:\n")
    for (n_out, width), entry in entries.items():
        if entry is not None:
            print(f"    ({n_out}, {width}): {entry},")
    return 0


def compile_ahead(weights: Sequence[Weight]) -> None:
    """Compiles all cuts in several processes; this one then finds them in Triton's cache on the disk."""
    jobs = [
        (shape, is_gated)
        for is_gated in (False, True)
        for shape in every_cut((w.n_out, w.width) for w in weights if w.is_gated == is_gated)
    ]
    workers = max(1, min(12, (os.cpu_count() or 2) - 2))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        failed = [line for line in pool.imap_unordered(_compile, jobs, chunksize=4) if line]
    for line in failed[:20]:
        print(line)
    print(f"compiled {len(jobs)} kernels by {workers} processes, {time.monotonic() - _BEGAN:.0f} s", flush=True)


def _compile(job: tuple[ProductShape, bool]) -> str:
    shape, is_gated = job
    x, weight = (torch.zeros((rows, 1024), device=DEVICE, dtype=DTYPE) for rows in (64, 512))
    try:
        fixed_product(x, weight, None, shape, is_gated=is_gated)
    except Exception as error:  # a cut that does not fit the device is a result as well
        return f"{shape}: {repr(error)[:120]}"
    return ""


@torch.inference_mode()
def sweep_weight(model: str, weight: Weight, bits: Bits) -> str | None:
    """Times all cuts of one weight, prints a line for each number of rows, returns the entry of MEASURED; None if there is no
    cut for some number of rows."""
    torch.manual_seed(5)
    copies = max(1, min(_MOST_LAUNCHES, int(_CACHE_BYTES / (2 * weight.n_out * weight.width)) + 1))
    weights = [_randn(weight.n_out, weight.width) / weight.width**0.5 for _ in range(copies)]
    x = _randn(_CHECKED_ROWS, weight.width)
    fast = {n: _time(lambda n=n: [_fast(x[:n], w, weight.is_gated) for w in weights], copies) for n in ROW_COUNTS}
    now: dict[int, float] = {}
    for n in ROW_COUNTS:
        shape = product_shape(n, weight.n_out, weight.width, DTYPE)
        now[n] = _time(lambda n=n, shape=shape: [_product(x[:n], w, weight, shape) for w in weights], copies)
    by_segments = {s: _sweep_segments(weight, s, x, weights, fast, bits) for s in segment_choices(weight.n_out, weight.width)}
    segments, best = min(by_segments.items(), key=lambda item: item[1].score)
    for n in ROW_COUNTS:
        limit_us = 2 * weight.n_out * weight.width / 4.3e6
        others = "  ".join(f"{s}: {chosen.by_rows[n][0]:.2f}" for s, chosen in by_segments.items() if n in chosen.by_rows)
        us, shape = best.by_rows.get(n, (math.nan, None))
        print(
            f"{model} {weight.name} {weight.n_out}x{weight.width}, {n} rows: limit {limit_us:.2f} us, without {fast[n]:.2f}, "
            f"now {now[n]:.2f} ({now[n] / fast[n] - 1:+.0%}), best {us:.2f} ({us / fast[n] - 1:+.0%}) {_short(shape)}"
            f" | best by segments {others}",
            flush=True,
        )
    if len(best.by_rows) < len(ROW_COUNTS):
        return None
    rows = ", ".join(f"{n}: {_as_code(shape)}" for n, (_, shape) in best.by_rows.items())
    return f"MeasuredShapes({segments}, {{{rows}}})"


def _sweep_segments(
    weight: Weight, segments: int, x: torch.Tensor, weights: list[torch.Tensor], fast: dict[int, float], bits: Bits
) -> Chosen:
    """Of the fewest rows all cuts are timed, and the best of them with prefetch; of a few more rows only the best of these."""
    reference = _product(x, weights[0], weight, ProductShape(64, 64, 64, 4, 3, segments))
    equal: dict[ProductShape, bool] = {}

    def timed(n: int, cuts: Sequence[ProductShape]) -> list[tuple[float, ProductShape]]:
        found: list[tuple[float, ProductShape]] = []
        for shape in cuts:
            try:
                if shape not in equal:
                    equal[shape] = _product(x, weights[0], weight, shape).equal(reference)
                    (bits.equal if equal[shape] else bits.other)[instruction_of(shape)] += 1
                if equal[shape]:
                    run = lambda shape=shape: [_product(x[:n], w, weight, shape) for w in weights]  # noqa: E731
                    found.append((_time(run, len(weights)), shape))
            except Exception as error:  # a cut that does not fit the device is a result as well
                print(f"    {shape}: {repr(error)[:100]}", flush=True)
        return sorted(found, key=lambda pair: pair[0])

    chosen, before = Chosen(), list[tuple[float, ProductShape]]()
    for n in ROW_COUNTS:
        if n == ROW_COUNTS[0]:
            best = timed(n, cuts_of(n, weight.n_out, segments))
            best = sorted(best + timed(n, [with_prefetch(shape) for _, shape in best[:_BEST]]), key=lambda pair: pair[0])
        elif n < 64:
            best = timed(n, [shape for _, shape in before[: 2 * _BEST]])
        else:
            best = timed(n, cuts_of(n, weight.n_out, segments))
        before = best
        if best:
            chosen.by_rows[n] = best[0]
        chosen.score += math.log(best[0][0] / fast[n]) if best else math.inf
    return chosen


def _product(x: torch.Tensor, w: torch.Tensor, weight: Weight, shape: ProductShape) -> torch.Tensor:
    return fixed_product(x, w, None, shape, is_gated=weight.is_gated)


def _fast(x: torch.Tensor, w: torch.Tensor, is_gated: bool) -> torch.Tensor:
    """What serves without the flag, but for the norm in front."""
    single = gemv_shape(*w.shape) if len(x) == 1 else None
    y = linear(x, w) if single is None else gemv(x, w, None, single)
    return silu_mul(y) if is_gated else y


def _time(run: Callable[[], object], launches: int) -> float:
    return graph_time_ms(run, 5) / launches * 1e3


def _short(shape: ProductShape | None) -> str:
    return "none" if shape is None else f"({', '.join(str(value) for value in vars(shape).values())})"


def _as_code(shape: ProductShape) -> str:
    values = [shape.rows, shape.outs, shape.k_block, shape.warps, shape.stages, shape.segments]
    named = (["is_split=True"] if shape.is_split else []) + ([f"prefetch={shape.prefetch}"] if shape.prefetch else [])
    return f"ProductShape({', '.join([*map(str, values), *named])})"


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=DTYPE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
