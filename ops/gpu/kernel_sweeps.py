"""Times of single kernels in all sensible cuts, to choose from; each line is one case, best cuts first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_workers.cuda.flash_attention import load_flash
from gpu_workers.cuda.kernels.attention.decode_parts import DecodeShape
from gpu_workers.cuda.kernels.attention.paged_decode import NewKeys, paged_decode
from gpu_workers.cuda.kernels.attention.paged_prefill import paged_prefill
from gpu_workers.cuda.kernels.attention.tiles import TileShape, list_tiles
from gpu_workers.cuda.kernels.attention.widened_keys import allocate_widened
from gpu_workers.cuda.kernels.gemv import GemvShape, gemv, gemv_shape
from gpu_workers.cuda.kernels.norm_gemv import norm_gemv
from gpu_workers.cuda.kernels.sampling.sample import sample_rows
from gpu_workers.cuda.ops import CudaOps
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.layers.kv_pages import KvShape
from gpu_workers.layers.rotary import cos_sin_table
from gpu_workers.layers.torch_ops import KvTarget
from messages.steps import PAGE_TOKENS
from ops.gpu.timing import graph_time_ms
from tests.support.workers.kernels.attention_checks import make_step
from tests.support.workers.kernels.kernel_checks import HEAD_SHAPES, column_of, random_state
from tests.support.workers.kernels.page_checks import random_pages

DEVICE = torch.device("cuda", 0)
BF16 = torch.bfloat16
READ_BYTES_PER_US = 4.3e6
_CACHE_BYTES = 2e8  # data of one graph must not fit into the L2 cache
_LAUNCHES = 32

SMALL_CASES = tuple(
    (hidden, ffn, heads, rows)
    for hidden, ffn, heads in ((4096, 14_336, (32, 8, 128)), (576, 1536, (9, 3, 64)))
    for rows in (1, 64, 256, 2048)
)
SAMPLING_CASES = ((49_152, 1), (128_256, 1), (49_152, 256), (128_256, 256))
DECODE_CASES = tuple(
    (name, rows, context)
    for name in ("llama-8b", "smollm2")
    for rows, context in ((1, 512), (1, 8192), (8, 1024), (64, 512), (64, 1024), (256, 512), (256, 1024))
)
_PREFILLS = (
    (1, 0, 2048), (4, 0, 2048), (8, 0, 2048), (1, 6144, 2048), (16, 0, 128), (16, 0, 512), (1, 0, 8192), (1, 90_112, 8192),
)  # fmt: skip
PREFILL_CASES = tuple((name, *rows) for name in ("llama-8b", "smollm2") for rows in _PREFILLS)
GEMV_CASES = tuple(
    (rows, n_out, width)
    for rows in (1, 2)
    for n_out, width in (
        (6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336), (128_256, 4096),
        (960, 576), (576, 576), (3072, 576), (576, 1536), (49_152, 576),
        (4096, 1024), (1024, 3072), (151_936, 1024),
    )
)  # fmt: skip
NORM_GEMV_CASES = (
    (6144, 4096, False), (28_672, 4096, True), (960, 576, False), (3072, 576, True), (4096, 1024, False), (6144, 1024, True),
)  # fmt: skip
_DECODE_CUTS = (
    (32, 1, 3),
    (32, 2, 3),
    (64, 2, 3),
    (64, 4, 3),
    (128, 4, 3),
    (64, 4, 4),
    (128, 4, 4),
    (128, 8, 3),
)  # keys, warps, stages
_PREFILL_CUTS = (
    TileShape(64, 64, 4, 2), TileShape(64, 64, 4, 3), TileShape(64, 128, 4, 2), TileShape(128, 64, 8, 2),
    TileShape(128, 64, 8, 3), TileShape(128, 128, 8, 2), TileShape(128, 64, 8, 4), TileShape(64, 64, 4, 4),
    TileShape(128, 128, 8, 3), TileShape(128, 32, 8, 4),
)  # fmt: skip
_GEMV_CUTS = tuple(
    GemvShape(rows, block, warps)
    for rows in (1, 2, 4, 8, 16)
    for block in (512, 1024, 2048)
    for warps in (1, 2, 4, 8)
    if 16 <= rows * block // (32 * warps) <= 128
)


def time_small(hidden: int, ffn: int, heads: tuple[int, int, int], rows: int) -> None:
    """Microseconds of one launch of each small operation."""
    n_heads, n_kv_heads, dim = heads
    ops, weight = CudaOps(), torch.ones(hidden, device=DEVICE, dtype=BF16)
    x, residual, gate_up = _randn(rows, hidden), _randn(rows, hidden), _randn(rows, 2 * ffn)
    q, k, v = _randn(rows, n_heads + 2 * n_kv_heads, dim).split((n_heads, n_kv_heads, n_kv_heads), 1)
    kv = random_pages(KvShape(1, n_kv_heads, dim, BF16), rows // 16 + 1, DEVICE)
    table, index = cos_sin_table(torch.ones(dim // 2, device=DEVICE), 4096), torch.arange(rows, device=DEVICE)
    runs: dict[str, Callable[[], object]] = {
        "rms_norm": lambda: ops.rms_norm(x, weight, 1e-5),
        "add_rms_norm": lambda: ops.add_rms_norm(x, residual, weight, 1e-5),
        "rope_store": lambda: ops.rope_and_store(q, k, v, KvTarget(index, table, kv.keys[0], kv.values[0], index)),
        "silu_mul": lambda: ops.silu_mul(gate_up),
    }
    times = {name: _repeated_us(run) for name, run in runs.items()}
    print(f"hidden {hidden} rows {rows}: us " + ", ".join(f"{n} {t:.2f}" for n, t in times.items()), flush=True)


def _repeated_us(run: Callable[[], object]) -> float:
    return graph_time_ms(lambda: [run() for _ in range(_LAUNCHES)]) / _LAUNCHES * 1e3


def time_sampling(vocabulary: int, rows: int) -> None:
    """Microseconds of sampling by temperature, for logits of both dtypes."""
    state = random_state(DEVICE, rows, 64, 8)
    column_of(state, "temperature").fill_(0.8)
    slots, (positions, ids) = torch.arange(rows, device=DEVICE), torch.zeros(2, rows, device=DEVICE, dtype=torch.int64)
    for dtype in (torch.float32, BF16):
        logits = _randn(rows, vocabulary).to(dtype)
        run = lambda logits=logits: sample_rows(logits, slots, positions, state, ids, advance=False)  # noqa: E731
        print(f"sampling {rows} x {vocabulary} {dtype}: {graph_time_ms(run) * 1e3:.1f} us", flush=True)


def sweep_decode(name: str, rows: int, context: int, page_dtype: torch.dtype = BF16) -> None:
    """Decode attention at one batch and context, with both ways to join the parts of a row."""
    n_heads, n_kv_heads, dim = HEAD_SHAPES[name]
    step, n_pages = make_step([(context - 1, 1)] * rows, rows, DEVICE)
    layer = KvShape(1, n_kv_heads, dim, page_dtype)
    copies = max(1, min(16, int(_CACHE_BYTES / (n_pages * layer.bytes_per_page))))
    kv = random_pages(replace(layer, n_layers=copies), n_pages, DEVICE)
    q, k, v = _randn(rows, n_heads + 2 * n_kv_heads, dim).split((n_heads, n_kv_heads, n_kv_heads), 1)
    out = torch.empty((rows, n_heads, dim), device=DEVICE, dtype=BF16)
    new = NewKeys(k, v, cos_sin_table(torch.ones(dim // 2, device=DEVICE), context))

    def run(shape: DecodeShape) -> None:
        for copy in range(copies):
            paged_decode(q, kv.keys[copy], kv.values[copy], step.page_table, step.lengths, out, dim**-0.5, shape, new)

    cuts = [
        DecodeShape(splits, *cut, least)
        for cut in _DECODE_CUTS
        for splits in (1, 2, 4, 8, 16, 32)
        for least in ((0, cut[0]) if splits > 1 else (0,))
        if 16 * splits <= context and (splits == 1 or splits * rows * n_kv_heads <= 4096)
    ]
    cuts = [cut for cut in cuts if cut.splits * rows * n_kv_heads >= 64]
    limit_us = rows * context / PAGE_TOKENS * layer.bytes_per_page / READ_BYTES_PER_US
    _print_best(f"decode {name} {rows} x {context} {page_dtype}: limit {limit_us:.1f} us", run, cuts, copies)


def sweep_prefill(name: str, rows: int, start: int, count: int) -> None:
    """Prefill attention of equal chunks, against torch's cuDNN path on contiguous keys and, where it is installed,
    FlashAttention 3 with the copies of keys that it needs."""
    n_heads, n_kv_heads, dim = HEAD_SHAPES[name]
    step, n_pages = make_step([(start, count)] * rows, 0, DEVICE)
    kv, q = random_pages(KvShape(1, n_kv_heads, dim, BF16), n_pages, DEVICE), _randn(rows * count, n_heads, dim)
    out, flops = torch.empty_like(q), 4 * rows * n_heads * dim * count * (start + count / 2)
    group = n_heads // n_kv_heads
    tiles = {}
    for pairs in {cut.pairs for cut in _PREFILL_CUTS}:
        tokens = pairs // group
        listed = list_tiles(np.arange(step.n_rows), step.row_starts, step.row_counts, step.row_offsets, tokens)
        tiles[pairs] = torch.from_numpy(listed).to(DEVICE)

    def run(shape: TileShape) -> None:
        paged_prefill(q, kv.keys[0], kv.values[0], step.page_table, tiles[shape.pairs], out, dim**-0.5, shape)

    title = f"prefill {name} {rows} x {count} from {start}: 100 TFLOP/s is {flops / 1e8:.0f} us"
    if start == 0:
        shapes = ((rows, n_heads, count, dim), *((rows, n_kv_heads, count, dim),) * 2)
        qc, kc, vc = (_randn(*shape) for shape in shapes)
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            ms = graph_time_ms(lambda: F.scaled_dot_product_attention(qc, kc, vc, is_causal=True, enable_gqa=True), 5)
        title += f", cuDNN {ms * 1e3:.0f} us"
    if load_flash(BF16, dim, DEVICE):
        widened = allocate_widened(n_kv_heads, rows * (start + count), dim, BF16, DEVICE)
        prepared = TritonAttention(n_heads, n_kv_heads, dim, BF16, widened=widened, flash=True).prepare(step)
        ms = graph_time_ms(lambda: prepared.attend(q, kv.keys[0], kv.values[0], dim**-0.5), 5)
        title += f", FlashAttention 3 and copies {ms * 1e3:.0f} us"
    _print_best(title, run, _PREFILL_CUTS, 1)


def sweep_gemv(rows: int, n_out: int, width: int) -> None:
    """One skinny product against cuBLAS."""
    copies = max(1, min(_LAUNCHES, int(2 * _CACHE_BYTES / (2 * n_out * width))))
    weights, x = [_randn(n_out, width) for _ in range(copies)], _randn(rows, width)
    cublas_us = graph_time_ms(lambda: [F.linear(x, weight) for weight in weights], 5) / copies * 1e3
    most = 128 if rows == 1 else 64  # elements of a thread
    cuts = [cut for cut in _GEMV_CUTS if cut.rows * cut.k_block // (32 * cut.warps) <= most and cut.k_block < 2 * width]
    if rows > 1:
        cuts = [cut for cut in cuts if cut.rows in (2, 4, 8)]

    def run(shape: GemvShape) -> None:
        for weight in weights:
            gemv(x, weight, None, shape)

    limit_us = 2 * n_out * width / READ_BYTES_PER_US
    _print_best(f"gemv {rows} x {n_out}x{width}: limit {limit_us:.2f} us, cuBLAS {cublas_us:.2f}", run, cuts, copies)


def sweep_norm_gemv(n_out: int, width: int, is_gated: bool) -> None:
    """Addition, norm, one row's product and gate in one kernel, against one kernel each."""
    copies = max(1, min(_LAUNCHES, int(2 * _CACHE_BYTES / (2 * n_out * width))))
    ops, norm, x, residual = CudaOps(), _randn(width), _randn(1, width), _randn(1, width)
    weights = [_randn(n_out, width) for _ in range(copies)]
    single = gemv_shape(n_out, width)
    assert single is not None

    def apart() -> None:
        for weight in weights:
            normed, _ = ops.add_rms_norm(x, residual, norm, 1e-5)
            y = gemv(normed, weight, None, single)
            if is_gated:
                ops.silu_mul(y)

    def run(shape: GemvShape) -> None:
        for weight in weights:
            norm_gemv(x, residual, norm, 1e-5, weight, None, shape, is_gated=is_gated)

    cuts = [
        GemvShape(rows, block, warps)
        for rows in (2, 4, 8, 16)
        for block in (512, 1024, 2048, 4096)
        for warps in (1, 2, 4, 8)
        if 8 <= rows * block // (32 * warps) <= 128 and block < 2 * width and 8 * block // (32 * warps) >= 8
    ]
    apart_us = graph_time_ms(apart, 5) / copies * 1e3
    limit_us = 2 * n_out * width / READ_BYTES_PER_US
    title = f"norm_gemv {n_out}x{width} gated {is_gated}: limit {limit_us:.2f} us, apart {apart_us:.2f}"
    _print_best(title, run, cuts, copies)


def _print_best(title: str, run: Callable[[Any], None], cuts: Iterable[Any], launches: int) -> None:
    found: list[tuple[float, str]] = []
    for cut in cuts:
        try:
            us = graph_time_ms(lambda cut=cut: run(cut), 5) / launches * 1e3
        except Exception as error:  # a cut that does not fit the device is a result as well
            print(f"    {cut}: {repr(error)[:120]}")
            continue
        found.append((us, ",".join(str(value) for value in vars(cut).values())))
    found.sort()
    best = "  ".join(f"{us:.2f} ({cut})" for us, cut in found[:4])
    print(f"{title} | {best}  worst {found[-1][0] if found else 0:.1f}", flush=True)


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE, dtype=BF16)
