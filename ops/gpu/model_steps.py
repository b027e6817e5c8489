"""Whole decode steps and prefills of real model shapes, with random weights, by the model, graphs and kernels that serve."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from gpu_workers.batch.device_state import DeviceState, allocate_device_state
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cuda.fp8_ops import Fp8CudaOps
from gpu_workers.graphs.cuda_graphs import StepGraphs
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.tensor_group import SingleRank
from gpu_workers.model_store.rope import Rope
from gpu_workers.models.llama.config import LlamaConfig
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.backend import choose_backend, plain_backend
from gpu_workers.settings import Quantization
from messages.steps import PAGE_TOKENS
from ops.gpu.timing import kernel_profile, replay_time_ms

DEVICE = torch.device("cuda", 0)
DTYPE = torch.bfloat16
READ_BYTES_PER_MS = 4.3e9  # of an H200, as a limit to compare with
_MOST_TOKENS = 16_384  # of a sequence: each replay of a decode step goes on by one from the context that is measured
MODELS = {
    "smollm2-135m": LlamaConfig(
        "llama", 30, 576, 9, 3, 64, 1536, 49_152, _MOST_TOKENS, rope=Rope(1e5), rms_eps=1e-5, tied_embeddings=True
    ),
    "qwen3-0.6b": LlamaConfig(
        "qwen3", 28, 1024, 16, 8, 128, 3072, 151_936, _MOST_TOKENS, rope=Rope(1e6), tied_embeddings=True, qk_norm=True
    ),
    "llama-8b": LlamaConfig("llama", 32, 4096, 32, 8, 128, 14_336, 128_256, _MOST_TOKENS, rope=Rope(5e5), rms_eps=1e-5),
}
CONTEXT_TOKENS = 224


def build(name: str, fast: bool = True, page_dtype: torch.dtype | None = None) -> Model:
    """A model of MODELS with the CUDA back ends, or with the torch ones. "NAME+fp8": with 8-bit weights. page_dtype: of its
    pages; None: the model's."""
    plain_name, _, suffix = name.partition("+")
    quantization: Quantization = "fp8" if suffix == "fp8" and fast else "none"
    config, placement = MODELS[plain_name], WeightPlacement(DEVICE, DTYPE, quantization=quantization)
    shard = shard_model(config, 0, 1)
    backend = (
        choose_backend(placement, config, shard, page_dtype=page_dtype) if fast else plain_backend(placement, config, shard)
    )
    parts = RankParts(shard, backend.ops, backend.attention, SingleRank(), page_dtype)
    return load_model(config, Path("no-files"), placement, parts, load_format="random")


def make_state(n_slots: int, max_length: int) -> tuple[DeviceState, int]:
    """Slots whose pages are all held, in random order; returns it and the number of pages with the dummy."""
    per_slot = -(-max_length // PAGE_TOKENS)
    n_pages = n_slots * per_slot
    state = allocate_device_state(n_slots, max_length, n_pages, DEVICE)
    state.pages[:n_slots] = torch.randperm(n_pages, device=DEVICE).view(n_slots, per_slot).int()
    state.tokens[:n_slots].random_(0, 1000)
    return state, n_pages + 1


def limit_ms(model: Model, n_rows: int, n_keys: int) -> float:
    """Time to read the weights once and the keys and values of all rows."""
    config = model.config
    layer_bytes = 1 if isinstance(model.parts.ops, Fp8CudaOps) else 2  # of a parameter
    weights = layer_bytes * config.layer_parameters + 2 * config.hidden * config.vocabulary
    return (weights + n_rows * n_keys * model.kv_shape.bytes_per_page // PAGE_TOKENS) / READ_BYTES_PER_MS


def time_decode(name: str, sizes: tuple[int, ...], profile_sizes: tuple[int, ...]) -> None:
    """Prints one line for each batch size: graph step, limit, lease of 8 with the host's share; profiles of some sizes."""
    began = time.monotonic()
    model = build(name)
    state, n_pages = make_state(max(sizes), CONTEXT_TOKENS + 64)
    kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
    kv.storage.normal_()
    graphs = StepGraphs(state, lambda step: model.logits(model.forward(step, kv)), decode_sizes=sizes)
    loaded = time.monotonic()
    graphs.capture()
    decode = graphs.decode
    print(
        f"{name}: built in {loaded - began:.1f} s, captured {len(sizes)} graphs in {time.monotonic() - loaded:.1f} s",
        flush=True,
    )
    for size in sizes:
        slots, positions = np.arange(size), np.full(size, CONTEXT_TOKENS)
        decode.run(slots, positions, 1, _pass)
        step_ms = replay_time_ms(decode._captured[size].graph.replay, 15)
        lease_ms = replay_time_ms(lambda slots=slots, positions=positions: decode.run(slots, positions, 8, _pass), 4) / 8
        least = limit_ms(model, size, CONTEXT_TOKENS)
        print(f"{name} batch {size}: step {step_ms:.3f} ms, in a lease {lease_ms:.3f}, limit {least:.3f}", flush=True)
        if size in profile_sizes:
            decode.run(slots, positions, 1, _pass)
            _print_profile(decode._captured[size].graph)


def _pass(index: int) -> None:
    """Keeps nothing of a step."""


def _print_profile(graph: torch.cuda.CUDAGraph) -> None:
    rows = kernel_profile(graph.replay)
    print(f"    kernels {sum(r[1] for r in rows)}, sum {sum(r[2] for r in rows) / 1e3:.3f} ms")
    for kernel, count, us in rows[:14]:
        print(f"    {us:9.1f} us {count:4d} x {us / max(1, count):7.2f}  {kernel[:110]}", flush=True)


def prefill_step(state: DeviceState, rows: list[tuple[int, int]]) -> StepTensors:
    """Row i computes `rows[i]` = (start, count) tokens of slot i and samples after the last."""
    starts, counts = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    slots = np.repeat(np.arange(len(rows)), counts)
    positions = np.concatenate([np.arange(start, start + count) for start, count in rows])
    slot_ids, places = torch.from_numpy(slots).to(DEVICE), torch.from_numpy(positions).to(DEVICE)
    return StepTensors(
        token_ids=state.tokens[slot_ids, places].long(),
        positions=places,
        slot_mapping=state.pages[slot_ids, places // PAGE_TOKENS].long() * PAGE_TOKENS + places % PAGE_TOKENS,
        page_table=state.pages[: len(rows)],
        lengths=torch.from_numpy(starts + counts).to(DEVICE),
        n_decode=0,
        row_starts=starts,
        row_counts=counts,
        row_offsets=(np.cumsum(counts) - counts).astype(np.int32),
        sample_index=torch.from_numpy(np.cumsum(counts).astype(np.int64) - 1).to(DEVICE),
    )


def time_prefill(name: str, rows: list[tuple[int, int]], title: str) -> None:
    """Prints the eager time of one step with prefill rows, as the device sees it, and the host's time to queue it."""
    model = build(name)
    state, n_pages = make_state(len(rows), max(start + count for start, count in rows))
    kv = KvPages.allocate(model.kv_shape, n_pages, DEVICE)
    step = prefill_step(state, rows)
    ms = replay_time_ms(lambda: model.logits(model.forward(step, kv)), 3)
    torch.cuda.synchronize()
    began = time.monotonic()
    model.logits(model.forward(step, kv))
    host_ms = (time.monotonic() - began) * 1e3
    torch.cuda.synchronize()
    n_tokens = sum(count for _, count in rows)
    print(f"{name} {title}: {ms:.2f} ms, {n_tokens / ms:.0f} tokens/ms; host queues it in {host_ms:.2f} ms", flush=True)


@torch.inference_mode()
def compare_with_torch(name: str) -> None:
    """Prefill, then decode by graphs, against the torch back ends on the same weights. Raises AssertionError."""
    fast, plain = build(name), build(name, fast=False)
    n_slots, n_steps = 4, 6
    state, n_pages = make_state(n_slots, 256)
    caches = [KvPages.allocate(fast.kv_shape, n_pages, DEVICE) for _ in range(2)]
    prompts = [(0, 33), (0, 128), (0, 7), (0, 100)]
    step = prefill_step(state, prompts)
    logits = [m.logits(m.forward(step, kv)).float() for m, kv in zip((fast, plain), caches, strict=True)]
    error = ((logits[0] - logits[1]).norm() / logits[1].norm()).item()
    assert error < 0.03, f"prefill: relative error {error}"
    ends = np.array([count for _, count in prompts])
    first = logits[1].argmax(-1).int()
    state.tokens[torch.arange(n_slots), torch.from_numpy(ends)] = first
    graphs = StepGraphs(state, lambda s: fast.logits(fast.forward(s, caches[0])), decode_sizes=(2, 8))
    graphs.capture()
    kept: list[torch.Tensor] = []
    graphs.decode.run(np.arange(n_slots), ends, n_steps, lambda index: kept.append(graphs.pool.ids[:n_slots].clone()))
    agreed = 0
    for index in range(n_steps):  # the plain model follows the tokens that the graphs chose
        step = prefill_step(state, [(int(end) + index, 1) for end in ends])
        wanted = plain.logits(plain.forward(step, caches[1])).float()
        chosen = wanted.gather(1, kept[index][:, None])
        assert bool((wanted.max(-1, keepdim=True).values - chosen <= 0.05 * wanted.std()).all()), f"step {index} differs"
        agreed += int((wanted.argmax(-1) == kept[index]).sum())
    print(f"{name}: prefill error {error:.4f}; {agreed} of {n_slots * n_steps} greedy tokens equal", flush=True)
