"""Prompts over plain and over compressed pages: checks of the kernels, then times beside each other, on one CUDA device.

    python3 -m ops.gpu.kv_prompt_trial [--model NAME] [--rounds 3] [--no-checks] [--sweep]

The last line is JSON: for each prompt the milliseconds of a step with each kind of pages, and how many times as fast as plain
pages the others are. "as read": without memory for widened keys, so attention widens each key as it reads it. --sweep: also
the cuts of attention over widened keys. Exit status 1 when a check failed."""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
import traceback
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from gpu_workers.batch.step_tensors import DeviceTiles, StepTensors
from gpu_workers.cuda.kernels.attention.paged_prefill import widened_prefill
from gpu_workers.cuda.kernels.attention.tiles import TileShape, list_tiles
from gpu_workers.cuda.kernels.attention.widened_keys import allocate_widened, widen_keys
from gpu_workers.cuda.triton_attention import TritonAttention, prefill_shape
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model
from ops.bench.machine import describe_machine
from ops.gpu.kv_dtype_steps import KINDS, fill_pages, with_pages
from ops.gpu.model_steps import DEVICE, DTYPE, build, make_state, prefill_step
from ops.gpu.timing import graph_time_ms, replay_time_ms
from tests.support.workers.kernels.kernel_checks import Check
from tests.support.workers.kernels.widened_checks import WIDENED_CHECKS

_PROMPTS = {
    "1 x 2048": [(0, 2048)],
    "4 x 2048": [(0, 2048)] * 4,
    "2048 after 6144": [(6144, 2048)],
    "512 after 6144": [(6144, 512)],
    "128 after 6144": [(6144, 128)],
    "8 x 128 after 2048": [(2048, 128)] * 8,
}
_MOST_CAPTURED = 1024  # tokens of a step in a graph
_SWEPT = ((1, 0, 2048), (1, 6144, 2048))
_CUTS = (
    TileShape(128, 64, 8, 3), TileShape(128, 64, 8, 2), TileShape(128, 64, 8, 4), TileShape(128, 128, 8, 2),
    TileShape(64, 64, 4, 3), TileShape(64, 64, 4, 2),
)  # fmt: skip


def main() -> int:
    """Reads the command line, checks, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-8b")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--sweep", action="store_true")
    words = parser.parse_args()
    began = time.monotonic()
    failed = [] if words.no_checks else check_kernels()
    print(f"checked in {time.monotonic() - began:.1f} s; failed: {failed or 'nothing'}", flush=True)
    models = models_of(build(words.model))
    print(f"{time.monotonic() - began:.1f} s: built {words.model}", flush=True)
    time_kernels(models["fp8"])
    cases = {title: compare(models, rows, words.rounds) for title, rows in _PROMPTS.items() if report(title, began)}
    if words.sweep:
        sweep(models["fp8"])
    machine = {**describe_machine(), "gpu": torch.cuda.get_device_name(DEVICE)}
    print(json.dumps({"bench": "kv-prompt-trial", "machine": machine, "model": words.model, "failed": failed, "ms": cases}))
    return 1 if failed else 0


def report(title: str, began: float) -> bool:
    """Prints what comes next, and since when. Returns True."""
    print(f"{time.monotonic() - began:.1f} s: {title}", flush=True)
    return True


def check_kernels() -> list[str]:
    """The checks of prompts over compressed pages, in the dtype that is served. Returns the names of those that failed."""
    return [name for name, check in WIDENED_CHECKS.items() if not passes(name, check)]


def passes(name: str, check: Check) -> bool:
    """Runs one check; prints a traceback instead of dying."""
    torch.manual_seed(7)
    try:
        check(DEVICE, DTYPE)
        torch.cuda.synchronize()
    except Exception:
        print(f"FAILED {name}\n{traceback.format_exc(limit=-4)}", flush=True)
        return False
    return True


def models_of(built: Model) -> dict[str, Model]:
    """The same weights with each kind of pages, and the compressed ones also without memory for widened keys."""
    models = {kind: with_pages(built, page_dtype) for kind, page_dtype in KINDS.items()}
    for kind in [kind for kind, page_dtype in KINDS.items() if page_dtype is not None]:
        twin = models[f"{kind} as read"] = copy.copy(models[kind])
        vars(twin)["_parts"] = replace(twin.parts, attention=built.parts.attention)
    return models


def compare(models: dict[str, Model], rows: list[tuple[int, int]], rounds: int) -> dict[str, float]:
    """One prompt step: the kinds of pages take turns. rows: (start, count) of each."""
    times: dict[str, list[float]] = {kind: [] for kind in models}
    for _ in range(rounds):
        for kind, model in models.items():
            times[kind].append(step_ms(model, rows))
    found = {kind: statistics.median(values) for kind, values in times.items()}
    found |= {f"{kind} ratio": found["bf16"] / ms for kind, ms in found.items() if kind != "bf16"}
    rounded = {name: round(value, 3) for name, value in found.items()}
    print(rounded, flush=True)
    return rounded


def step_ms(model: Model, rows: list[tuple[int, int]]) -> float:
    """Milliseconds of one step: as the server runs it, in a graph if it has few tokens."""
    state, n_pages = make_state(len(rows), max(start + count for start, count in rows))
    kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
    fill_pages(kv)
    step = prefill_step(state, rows)
    if step.n_tokens > _MOST_CAPTURED:
        return replay_time_ms(lambda: model.logits(model.forward(step, kv)), 3)
    captured = with_device_tiles(step, model)
    return graph_time_ms(lambda: model.logits(model.forward(captured, kv)), 6)


def with_device_tiles(step: StepTensors, model: Model) -> StepTensors:
    """The same step as captured steps have it: its rows are known to the device alone."""
    attention, nothing = model.parts.attention, np.zeros(0, np.int32)
    assert isinstance(attention, TritonAttention)
    columns = (np.arange(step.n_rows), step.row_starts, step.row_counts, step.row_offsets)
    tiles = torch.from_numpy(list_tiles(*columns, attention.tile_tokens, attention.widened_room)).to(DEVICE)
    return replace(
        step,
        page_table=step.page_table[:0],
        lengths=step.lengths[:0],
        row_starts=nothing,
        row_counts=nothing,
        row_offsets=nothing,
        device_tiles=DeviceTiles(tiles, step.page_table),
    )


def time_kernels(model: Model) -> None:
    """Prints the microseconds of one layer's kernels for 2,048 tokens after 6,144, in a graph."""
    shape, group = prefill_shape(model.config.head_dim, DTYPE), model.config.n_heads // model.config.n_kv_heads
    q, kv, page_table, tiles, widened = kernel_inputs(model, 1, 6144, 2048, shape.pairs)
    out, scale = torch.empty_like(q), q.shape[2] ** -0.5
    runs = {
        "widen": partial(widen_keys, kv.keys[0], kv.values[0], page_table, tiles, widened, shape.pairs // group),
        "attend": partial(widened_prefill, q, widened, tiles, out, scale, shape),
    }
    found = {name: round(graph_time_ms(run, 5) * 1e3, 1) for name, run in runs.items()}
    print(f"one layer, 2048 after 6144, us: {found}", flush=True)


def kernel_inputs(
    model: Model, n_rows: int, start: int, count: int, pairs: int
) -> tuple[torch.Tensor, KvPages, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, pages, page table, tiles of so many pairs, and memory for widened keys of equal prompts."""
    config = model.config
    state, n_pages = make_state(n_rows, start + count)
    kv = KvPages.allocate(replace(model.kv_shape, n_layers=1), n_pages, DEVICE)
    fill_pages(kv)
    step = prefill_step(state, [(start, count)] * n_rows)
    room = n_rows * (start + count)
    rows = np.arange(n_rows)
    group = config.n_heads // config.n_kv_heads
    tiles = list_tiles(rows, step.row_starts, step.row_counts, step.row_offsets, pairs // group, room)
    widened = allocate_widened(config.n_kv_heads, room, config.head_dim, DTYPE, DEVICE)
    q = torch.randn((n_rows * count, config.n_heads, config.head_dim), device=DEVICE, dtype=DTYPE)
    return q, kv, step.page_table, torch.from_numpy(tiles).to(DEVICE), widened


def sweep(model: Model) -> None:
    """Prints the microseconds of attention over widened keys in several cuts."""
    for n_rows, start, count in _SWEPT:
        for cut in _CUTS:
            q, _, _, tiles, widened = kernel_inputs(model, n_rows, start, count, cut.pairs)
            widened.normal_()
            run = partial(widened_prefill, q, widened, tiles, torch.empty_like(q), q.shape[2] ** -0.5, cut)
            try:
                us = graph_time_ms(run, 5) * 1e3
            except Exception as error:  # a cut that does not fit the device is a result as well
                print(f"    {cut}: {repr(error)[:120]}", flush=True)
                continue
            print(f"{n_rows} x {count} after {start}: {us:.1f} us {cut}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
