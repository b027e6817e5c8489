"""What sampling options cost on one CUDA device: `python3 -m ops.gpu.sampling_costs [model ...]`, about a minute.

For each model, batch size and kind of sampling, with random weights and through the model runner: milliseconds a token as a
client would see them, those on the device, and what the kind costs beside greedy rows. Then the sampling kernels alone, on
logits that lie far apart, as those of trained models do, and on flat ones.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import torch

from gpu_workers.batch.device_state import allocate_device_state
from gpu_workers.batch.sampling_table import SamplingTable
from gpu_workers.cuda.kernels.sampling.sample import sample_rows
from gpu_workers.graphs.cuda_graphs import StepGraphs
from gpu_workers.graphs.token_counts import TokenCounts
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.runner.backend import CapturedSteps
from gpu_workers.runner.model_runner import ModelRunner
from messages.generation.sampling import Sampling
from messages.steps import PAGE_TOKENS, EngineCapacity, NewSequence
from ops.gpu.model_steps import DEVICE, MODELS, build
from ops.gpu.timing import graph_time_ms
from tests.support.workers.small_scheduler import Row, SmallScheduler

_NAMES = ("smollm2-135m", "llama-8b")
_BATCHES = (1, 8, 64, 256)
_KINDS = {
    "greedy": Sampling(temperature=0.0),
    "temperature 0.7": Sampling(temperature=0.7, seed=1),
    "top-k 20, top-p 0.8": Sampling(temperature=0.7, top_k=20, top_p=0.8, seed=1),
    "top-p 0.9": Sampling(temperature=0.7, top_p=0.9, seed=1),
    "min-p 0.05": Sampling(temperature=0.7, min_p=0.05, seed=1),
    "repetition 1.1": Sampling(temperature=0.0, repetition_penalty=1.1),
    "all penalties, top-k, top-p": Sampling(
        temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1, seed=1
    ),
}
_PROMPT_TOKENS, _MAX_LENGTH, _LEASE, _PLANS, _STEP_TOKENS = 128, 256, 8, 8, 8192
_SPREADS = {"apart": 3.0, "flat": 0.3}  # standard deviations of the logits of the kernels alone


def make_runner(name: str) -> ModelRunner:
    """A runner with decode graphs of the batch sizes; prompts run without graphs."""
    model = build(name)
    n_slots = max(_BATCHES)
    n_pages = n_slots * _MAX_LENGTH // PAGE_TOKENS
    state = allocate_device_state(n_slots, _MAX_LENGTH, n_pages, DEVICE)
    kv = KvPages.allocate(model.kv_shape, n_pages + 1, DEVICE)
    graphs = StepGraphs(state, lambda step: model.logits(model.forward(step, kv)), decode_sizes=_BATCHES)
    graphs.capture()
    capacity = EngineCapacity(
        n_pages=n_pages, n_slots=n_slots, max_length=_MAX_LENGTH, max_step_tokens=_STEP_TOKENS, max_lease_steps=_LEASE,
        lease_s=0.005, vocabulary=model.config.vocabulary, device="cuda",
    )  # fmt: skip
    return ModelRunner(model, kv, state, capacity, CapturedSteps(graphs=graphs))


def time_tokens(runner: ModelRunner, batch: int, sampling: Sampling) -> tuple[float, float]:
    """Milliseconds a step of `batch` rows takes: by the wall clock, with two leases in flight, and on the device (median)."""
    scheduler = SmallScheduler(runner)
    draw = np.random.default_rng(0)
    sequences = [scheduler.add(draw.integers(0, 40_000, _PROMPT_TOKENS).tolist(), sampling) for _ in range(batch)]
    at_once = _STEP_TOKENS // _PROMPT_TOKENS
    for first in range(0, batch, at_once):
        scheduler.prefill(*sequences[first : first + at_once])
    rows = [Row(sequence) for sequence in sequences]
    scheduler.run(rows, _LEASE)
    began_s, device_s = time.monotonic(), []
    launched = runner.launch(scheduler.write_plan(rows, _LEASE))
    for _ in range(_PLANS - 1):
        following = runner.launch(scheduler.write_plan(rows, _LEASE))
        device_s += [result.compute_s for result in scheduler.read(list(runner.collect(launched)))]
        launched = following
    device_s += [result.compute_s for result in scheduler.read(list(runner.collect(launched)))]
    wall_s = time.monotonic() - began_s
    return wall_s / (_PLANS * _LEASE) * 1e3, statistics.median(device_s) * 1e3


def time_model(name: str) -> None:
    """Prints a line for each batch size and kind."""
    began = time.monotonic()
    runner = make_runner(name)
    print(f"{name}: built in {time.monotonic() - began:.1f} s", flush=True)
    for sampling in _KINDS.values():
        time_tokens(runner, 1, sampling)  # compiles what is left
    for batch in _BATCHES:
        plain_ms = 0.0
        for kind, sampling in _KINDS.items():
            times = [time_tokens(runner, batch, sampling) for _ in range(2)]
            wall_ms, device_ms = (min(values) for values in zip(*times, strict=True))
            plain_ms = plain_ms or wall_ms
            cost = f"{wall_ms / plain_ms - 1:+7.1%}"
            print(f"{name} batch {batch:3} {kind:28} {wall_ms:7.3f} ms a token, device {device_ms:7.3f}, {cost}", flush=True)


def time_kernels(name: str) -> None:
    """Prints microseconds of the sampling kernels alone."""
    vocabulary = MODELS[name].vocabulary
    for rows in (1, 64, 256):
        for spread, deviation in _SPREADS.items():
            logits = (torch.randn(rows, vocabulary, device=DEVICE) * deviation).to(torch.bfloat16)
            times = [f"{kind} {_kernels_us(logits, sampling):.1f}" for kind, sampling in _KINDS.items()]
            print(f"kernels {rows} x {vocabulary} {spread}: {'; '.join(times)} us", flush=True)


def _kernels_us(logits: torch.Tensor, sampling: Sampling) -> float:
    n, vocabulary = logits.shape
    state, table = allocate_device_state(n, 1024, 8, DEVICE), SamplingTable(n)
    state.tokens.random_(0, vocabulary)
    for slot in range(n):
        table.put(NewSequence(slot=slot, n_tokens=1000, n_prompt=500, sampling=sampling))
    slots = np.arange(n)
    state.sampling[:n] = torch.from_numpy(table.values_of(slots).view(np.int64)).view(n, -1).to(DEVICE)
    counts = TokenCounts(state, vocabulary)
    counts.prepare(slots, np.full(n, 1000), 1, table)
    on_device, ids = torch.arange(n, device=DEVICE), torch.zeros(n, dtype=torch.int64, device=DEVICE)
    positions = torch.full_like(on_device, 999)
    return 1e3 * graph_time_ms(
        lambda: sample_rows(logits, on_device, positions, state, ids, advance=False, counts=counts.values)
    )


def main(names: list[str]) -> int:
    """Returns the exit status."""
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(DEVICE)}", flush=True)
    for name in names or _NAMES:
        time_kernels(name)
    for name in names or _NAMES:
        time_model(name)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
