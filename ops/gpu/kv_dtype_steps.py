"""Captured decode steps of Llama-8B's shape with plain and with compressed pages, in turns, on one CUDA device.

    python3 -m ops.gpu.kv_dtype_steps [--model NAME] [--batches 1,8,64] [--contexts 225,1000,8192] [--sweep]

The last line is JSON: for each batch and context the milliseconds of a step with each kind of pages, their ratio, and the least
that the memory of an H200 allows; "does not fit" where the pages do not fit the device. All have the same weights.
`--sweep` times the cuts of decode attention over these kinds of pages instead."""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gpu_workers.graphs.cuda_graphs import StepGraphs
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.page_format import FP8, INT4, scales_of
from gpu_workers.layers.small_integers import FIRST_SCALE
from gpu_workers.layers.small_pages import parts_of
from gpu_workers.models.model import Model
from gpu_workers.runner.cuda_backend import triton_attention
from messages.steps import PAGE_TOKENS
from ops.bench.machine import describe_machine
from ops.gpu.kernel_sweeps import sweep_decode
from ops.gpu.model_steps import DEVICE, DTYPE, build, limit_ms, make_state, prefill_step
from ops.gpu.timing import replay_time_ms

KINDS = {"bf16": None, "fp8": FP8, "int8": torch.int8, "int4": INT4}
_ROUNDS, _REPLAYS = 3, 8
_LEAST_FREE_BYTES = 4 << 30  # for graphs and activations, beside weights and pages
_PREFILLS = {"2048": [(0, 2048)], "4 x 2048": [(0, 2048)] * 4, "2048 after 6144": [(6144, 2048)]}
_SCALE_CODE = ((127 - 6) << 3) - FIRST_SCALE  # of one 64th in pages of small integers
_SWEEPS = ((1, 225), (1, 1000), (1, 8192), (8, 1000), (8, 8192), (64, 225), (64, 1000), (64, 8192), (256, 1000))


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-8b")
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--contexts", default="225,1000,8192")
    parser.add_argument("--kinds", default=",".join(KINDS), help="ratios are to the first")
    parser.add_argument("--sweep", action="store_true")
    words = parser.parse_args()
    if words.sweep:
        for rows, context in _SWEEPS:
            for kind in words.kinds.split(","):
                sweep_decode(words.model, rows, context, KINDS[kind] or DTYPE)
        return
    batches, contexts = ([int(word) for word in text.split(",")] for text in (words.batches, words.contexts))
    built = build(words.model)
    models = {kind: with_pages(built, KINDS[kind]) for kind in words.kinds.split(",")}
    cases = [_compare(models, rows, context) for context in contexts for rows in batches]
    prefills = {title: {kind: _prefill_ms(model, rows) for kind, model in models.items()} for title, rows in _PREFILLS.items()}
    print(prefills, flush=True)
    machine = {**describe_machine(), "gpu": torch.cuda.get_device_name(DEVICE)}
    print(
        json.dumps(
            {"bench": "kv-dtype-steps", "machine": machine, "model": words.model, "cases": cases, "prefill_ms": prefills}
        )
    )


def with_pages(model: Model, page_dtype: torch.dtype | None) -> Model:
    """The same weights with pages of this dtype, None: the model's, and the attention that is served with them."""
    attention = triton_attention(DTYPE, model.config, model.parts.shard, page_dtype, DEVICE)
    twin = copy.copy(model)
    vars(twin)["_parts"] = replace(model.parts, page_dtype=page_dtype, attention=attention)
    return twin


def _compare(models: dict[str, Model], rows: int, context: int) -> dict[str, Any]:
    """One batch and context: the kinds of pages take turns, and are captured anew in each, because both may not fit at once."""
    case: dict[str, Any] = {"batch": rows, "context": context}
    times: dict[str, list[float]] = {kind: [] for kind, model in models.items() if _fits(model, rows, context)}
    for _ in range(_ROUNDS):
        for kind, found in times.items():
            found.append(replay_time_ms(_captured(models[kind], rows, context), _REPLAYS))
            gc.collect()
            torch.cuda.empty_cache()
    for kind, model in models.items():
        case[f"{kind}_ms"] = round(statistics.median(times[kind]), 3) if kind in times else "does not fit"
        case[f"{kind}_least_ms"] = round(limit_ms(model, rows, context), 3)
    plain, *others = models
    case |= {
        f"{kind}_ratio": round(case[f"{plain}_ms"] / case[f"{kind}_ms"], 3) for kind in others if {plain, kind} <= set(times)
    }
    print(case, flush=True)
    return case


def _fits(model: Model, rows: int, context: int) -> bool:
    free_bytes, _ = torch.cuda.mem_get_info(DEVICE)
    n_pages = rows * (-(-(context + PAGE_TOKENS) // PAGE_TOKENS)) + 1
    return n_pages * model.kv_shape.bytes_per_page + _LEAST_FREE_BYTES <= free_bytes


def _captured(model: Model, rows: int, context: int) -> Callable[[], object]:
    """A function that runs one step of `rows` rows again, each with `context` keys."""
    state, n_pages = make_state(rows, context + PAGE_TOKENS)
    kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
    fill_pages(kv)
    graphs = StepGraphs(state, lambda step: model.logits(model.forward(step, kv)), decode_sizes=(rows,))
    graphs.capture()
    graphs.decode.run(np.arange(rows), np.full(rows, context - 1), 1, lambda index: None)
    graph = graphs.decode._captured[rows].graph

    def replay() -> tuple[StepGraphs, KvPages]:
        graph.replay()
        return graphs, kv  # which must live as long as the graph

    return replay


def _prefill_ms(model: Model, rows: list[tuple[int, int]]) -> float:
    """Milliseconds of one step outside of graphs. rows: (start, count) of each."""
    state, n_pages = make_state(len(rows), max(start + count for start, count in rows))
    kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
    step = prefill_step(state, rows)
    return round(replay_time_ms(lambda: model.logits(model.forward(step, kv)), 4), 2)


def fill_pages(kv: KvPages) -> None:
    """Normal numbers; compressed pages get random bits of finite numbers, and scales of one 64th."""
    if kv.shape.dtype.itemsize > 1:
        kv.storage.normal_()
        return
    kv.storage.view(torch.int8).random_(-128, 127).bitwise_and_(-9)  # without the bits of NaN
    for keys, values in zip(kv.keys, kv.values, strict=True):
        if kv.shape.dtype == INT4:
            for pages, is_key in ((keys, True), (values, False)):
                parts_of(pages, is_key=is_key).scales.fill_(_SCALE_CODE)
        else:
            for pages in (keys, values):
                scales_of(pages).fill_(1 / 64)


if __name__ == "__main__":
    main()
