"""Checks `deterministic` on one CUDA device, and what it costs: `python3 -m ops.gpu.deterministic_check [model ...]`.

Kernels alone, then whole models with random weights through the model runner: sequences alone, crowded and continued must have
the same tokens and log probabilities, bit for bit. Then times of steps with and without. Prints PASS or FAIL last.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from gpu_workers.batch.device_state import allocate_device_state
from gpu_workers.cuda.deterministic import DeterministicCudaOps, DeterministicTritonAttention
from gpu_workers.cuda.triton_attention import TritonAttention
from gpu_workers.graphs.cuda_graphs import StepGraphs
from gpu_workers.graphs.mixed_sizes import mixed_sizes
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.models.model import Model, RankParts, RecordableModel
from gpu_workers.runner.backend import CapturedSteps, deterministic_sampler
from gpu_workers.runner.model_runner import ModelRunner
from messages.steps import PAGE_TOKENS, EngineCapacity
from ops.gpu.model_steps import CONTEXT_TOKENS, DEVICE, DTYPE, build, make_state, prefill_step
from ops.gpu.timing import kernel_profile, replay_time_ms
from tests.support.workers.deterministic_runs import differences, make_cases
from tests.support.workers.kernels.deterministic_checks import DETERMINISTIC_CHECKS

_NAMES = ("smollm2-135m", "llama-8b")
_LENGTHS = (1, 5, 33, 64, 100, 150, 257, 400, 511, 515, 600, 17) * 3  # of prompts; some go beyond the captured sizes
_N_TOKENS, _N_SLOTS, _MAX_LENGTH = 24, 64, 704
_SIZES, _PREFILL_TOKENS = (1, 8, 64, 256), 2048
_PROFILED_SIZES, _SHOWN_KERNELS = (1, 256), 8


def main(names: list[str]) -> int:
    """Returns the exit status: 0 if all is well."""
    found = check_kernels()
    for name in names or _NAMES:
        began = time.monotonic()
        fast = build(name)
        assert isinstance(fast, RecordableModel)
        exact = fast.with_parts(_deterministic_parts(fast))
        print(f"{name}: built in {time.monotonic() - began:.1f} s", flush=True)
        found += [f"{name}: {line}" for line in check_runs(name, exact, fast)]
        time_steps(name, fast, exact)
        del fast, exact
        torch.cuda.empty_cache()
    for line in found[:40]:
        print(line)
    print("FAIL" if found else "PASS", flush=True)
    return bool(found)


def _deterministic_parts(model: Model) -> RankParts:
    config, shard = model.config, model.parts.shard
    attention = DeterministicTritonAttention(len(shard.heads), len(shard.kv_heads), config.head_dim, DTYPE)
    return replace(model.parts, ops=DeterministicCudaOps(), attention=attention)


def check_kernels() -> list[str]:
    """What is wrong, a line each."""
    found = []
    for name, check in DETERMINISTIC_CHECKS.items():
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            began = time.monotonic()
            torch.manual_seed(1)
            try:
                check(DEVICE, dtype)
            except AssertionError as error:
                found.append(f"{name} {dtype}: {' '.join(str(error).split())[:200]}")
            print(f"kernels {name} {dtype}: {time.monotonic() - began:.1f} s", flush=True)
    return found


def make_runner(model: Model, *, deterministic: bool) -> ModelRunner:
    """A runner with decode graphs of every size and graphs of small steps with prompts; larger steps are not captured."""
    attention = model.parts.attention
    assert isinstance(attention, TritonAttention)
    n_pages = _N_SLOTS * _MAX_LENGTH // PAGE_TOKENS
    state = allocate_device_state(_N_SLOTS, _MAX_LENGTH, n_pages, DEVICE)
    kv = KvPages.allocate(model.kv_shape, n_pages + 1, DEVICE)
    sizes = [size for size in mixed_sizes(_N_SLOTS, 256, attention.tile_tokens) if size.tokens in (32, 256)]
    graphs = StepGraphs(
        state, lambda step: model.logits(model.forward(step, kv)), sizes, attention.tile_tokens, decode_sizes=(1, 8, 64)
    )
    graphs.capture()
    capacity = EngineCapacity(
        n_pages=n_pages, n_slots=_N_SLOTS, max_length=_MAX_LENGTH, max_step_tokens=8192, max_lease_steps=8, lease_s=0.005,
        vocabulary=model.config.vocabulary, device="cuda",
    )  # fmt: skip
    sample = deterministic_sampler(state) if deterministic else None
    return ModelRunner(model, kv, state, capacity, CapturedSteps(graphs=graphs), sample)


def check_runs(name: str, exact: Model, fast: Model) -> list[str]:
    """What differs with `deterministic`, a line each; prints how much differs without."""
    cases = make_cases(_LENGTHS, exact.config.vocabulary)
    began = time.monotonic()
    found = differences(make_runner(exact, deterministic=True), cases, _N_TOKENS)
    print(f"{name} deterministic: {len(found)} runs differ ({time.monotonic() - began:.1f} s)", flush=True)
    without = differences(make_runner(fast, deterministic=False), cases, _N_TOKENS, seeds=(0,))
    tokens = sum(": token" in line for line in without)
    print(f"{name} without: {len(without)} of {2 * len(cases)} runs differ, {tokens} in a token", flush=True)
    return found


@torch.inference_mode()
def time_steps(name: str, fast: Model, exact: Model) -> None:
    """Prints a line for each batch size and one for a prefill: milliseconds without and with, in turns."""
    state, n_pages = make_state(max(_SIZES), max(CONTEXT_TOKENS + 128, _PREFILL_TOKENS // 8))
    kv = KvPages.allocate(fast.kv_shape, n_pages, DEVICE)
    kv.storage.normal_()
    graphs = [
        StepGraphs(state, lambda step, model=model: model.logits(model.forward(step, kv)), decode_sizes=_SIZES)
        for model in (fast, exact)
    ]
    for captured in graphs:
        captured.capture()
    for size in _SIZES:
        slots, positions = np.arange(size), np.full(size, CONTEXT_TOKENS)
        times: list[list[float]] = [[], []]
        for _ in range(2):
            for captured, kept in zip(graphs, times, strict=True):
                captured.decode.run(slots, positions, 1, lambda index: None)
                kept.append(replay_time_ms(captured.decode._captured[size].graph.replay, 12))
        _print_times(f"{name} batch {size}", *map(min, times))
        if size in _PROFILED_SIZES:
            for what, captured in zip(("without", "with"), graphs, strict=True):
                _print_kernels(f"{name} batch {size} {what}", captured.decode._captured[size].graph.replay)
    step = prefill_step(state, [(0, _PREFILL_TOKENS // 8)] * 8)
    without, with_flag = (replay_time_ms(lambda m=m: m.logits(m.forward(step, kv)), 5) for m in (fast, exact))
    _print_times(f"{name} prefill of {_PREFILL_TOKENS} tokens", without, with_flag)


def _print_times(what: str, without_ms: float, with_ms: float) -> None:
    cost = with_ms / without_ms - 1
    print(f"{what}: {without_ms:.3f} ms without, {with_ms:.3f} ms with deterministic, {cost:+.0%}", flush=True)


def _print_kernels(what: str, replay: Callable[[], object]) -> None:
    kernels = kernel_profile(replay)
    shown = (f"{name[:40]} {us:.0f} us in {launches}" for name, launches, us in kernels[:_SHOWN_KERNELS])
    print(f"    {what}: {sum(launches for _, launches, _ in kernels)} kernels; {'; '.join(shown)}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
