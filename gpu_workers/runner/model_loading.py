"""Builds a warmed-up model runner from settings: device, gang, weights, memory, graphs. Each phase is reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gpu_workers.batch.device_state import allocate_device_state
from gpu_workers.batch.step_tensors import StepTensors
from gpu_workers.cuda.symmetric_group import SymmetricGroup
from gpu_workers.engine import ReportLoading
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.grammar.vocabulary import find_vocabulary
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.tensor_group import DistributedGroup, FixedOrderGroup, SingleRank, TensorGroup
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.runner.backend import AttentionChoice, CapturedSteps, capture_steps, choose_backend, deterministic_sampler
from gpu_workers.runner.memory_budget import count_pages, cpu_kv_bytes, cuda_kv_bytes
from gpu_workers.runner.memory_estimate import CUDA_RESERVE_BYTES, sampling_bytes
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.runner.warm_up import warm_up
from gpu_workers.runner.weight_sharing import load_shared
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.kv_memory import KvMemory
from gpu_workers.vault.rank_vault import RankVault
from gpu_workers.vault.weight_vault import WeightVault
from messages.steps import PAGE_TOKENS, EngineCapacity

_RENDEZVOUS = "rendezvous"
_LONGER_ROWS = 64  # enough for a step that fits no graph
_GANG_TIMEOUT_S = 600.0  # ranks load at different speeds; the supervisor detects a dead rank long before this


def load_model_runner(
    settings: WorkerSettings, gang_dir: Path, report: ReportLoading, kept: RankVault | None = None
) -> ModelRunner:
    """The engine for a model folder, warmed up.

    kept: what outlives this process; None: nothing does.
    Raises: ConfigError, ModelConfigError or WeightsError naming what does not fit; torch's errors for a missing device.
    """
    device = choose_device(settings)
    config = read_model_config(Path(settings.model_folder))
    model = build_model(
        config,
        Path(settings.model_folder),
        WeightPlacement(device, getattr(torch, settings.dtype_name)),
        group=join_gang(settings, gang_dir, device, report),
        attention=settings.attention,
        deterministic=settings.deterministic,
        load_format="random" if settings.load_format == "random" else "safetensors",
        on_progress=lambda fraction: report("weights", fraction),
        vault=kept.weights if kept is not None else None,
    )
    report("memory", 0.0)
    memory = kept.kv if kept is not None and device.type == "cuda" else None
    n_kept = _kept_pages(model, memory) if memory is not None else 0
    capacity = measure_capacity(settings, config, model, n_kept, kept.shared_bytes if kept is not None else 0)
    kv = KvPages.allocate(model.kv_shape, capacity.n_pages + 1, device, is_shared=memory is not None)
    if memory is not None and kv.region is not None:
        memory.reserve(kv.region)
    state = allocate_device_state(capacity.n_slots, capacity.max_length, capacity.n_pages, device)
    sampler = deterministic_sampler(state) if settings.deterministic else None
    _warm_large_steps(ModelRunner(model, kv, state, capacity, CapturedSteps(), sampler), model, kv)
    captured = CapturedSteps()
    if device.type == "cpu" or settings.cuda_graphs:
        captured = capture_steps(model, kv, state, capacity.max_step_tokens, lambda fraction: report("graphs", fraction))
    grammars = GrammarTable(find_vocabulary(Path(settings.model_folder), config.vocabulary))
    runner = ModelRunner(model, kv, state, capacity, captured, sampler, grammars)
    report("warm up", 0.0)
    runner.end_warm_up(warm_up(runner))
    report("warm up", 1.0)
    return runner


def _warm_large_steps(runner: ModelRunner, model: Model, kv: KvPages) -> None:
    """Runs steps that fit no graph: long prompts, alone and beside rows of one token, and the first step of a promoted standby,
    which is the last page of every sequence at once. Without this such a step would load and compile kernels while requests
    wait: seconds for each kernel that Triton's cache lacks. There is a kernel for each range of the number of rows
    of one token. `launch` says what else makes variants of a kernel. On CPUs nothing is compiled, and nothing runs."""
    if model.device.type != "cuda":
        return
    warm_up(runner)
    capacity = runner.capacity()
    most_rows = min(capacity.n_slots, capacity.max_step_tokens // PAGE_TOKENS, kv.n_pages)
    for n_single in (0, *model.parts.attention.decode_row_counts(most_rows - 1)) if most_rows else ():
        longer = [PAGE_TOKENS] * min(_LONGER_ROWS, most_rows - n_single)
        run_empty_step(model, kv, [1] * n_single + longer)
    for n_tokens in model.parts.ops.token_counts(min(capacity.max_step_tokens, kv.n_pages * PAGE_TOKENS)):
        run_empty_step(model, kv, [n_tokens])


def choose_device(settings: WorkerSettings) -> torch.device:
    """The device of the settings. Sets torch's number of threads and its current device."""
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(settings.threads or max(1, cores // settings.cpu_ranks))
    if settings.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", settings.device_index)
    torch.cuda.set_device(device)
    return device


def join_gang(settings: WorkerSettings, gang_dir: Path, device: torch.device, report: ReportLoading) -> TensorGroup:
    """Joins the other ranks of this incarnation and waits until all have joined."""
    if settings.tp == 1:
        return SingleRank()
    report("gang", 0.0)
    rendezvous = gang_dir / _RENDEZVOUS
    if device.type == "cpu":
        return DistributedGroup.join(settings.rank, settings.tp, rendezvous, device, _GANG_TIMEOUT_S)
    group = SymmetricGroup.join(settings.rank, settings.tp, rendezvous, device, _GANG_TIMEOUT_S)
    group.share_memory(getattr(torch, settings.dtype_name))
    return group


def build_model(
    config: ModelConfig,
    folder: Path,
    placement: WeightPlacement,
    *,
    group: TensorGroup | None = None,
    attention: AttentionChoice = "auto",
    deterministic: bool = False,
    load_format: str = "safetensors",
    on_progress: Callable[[float], None] = lambda fraction: None,
    vault: WeightVault | None = None,
) -> Model:
    """The rank's part of the model, computed by the back ends of its device. group None: a single rank. vault: shares the
    weights with other processes of the rank; None: they are this process's own.

    Raises: ConfigError for attention or deterministic kernels that the device or model does not have, ValueError for a model
    that cannot be split over the group, and what `load_model` raises."""
    group = SingleRank() if group is None else group
    shard = shard_model(config, group.rank, group.size)
    backend = choose_backend(placement, config, shard, attention, deterministic=deterministic)
    in_order = FixedOrderGroup(group) if deterministic else group
    parts = RankParts(shard, backend.ops, backend.attention, in_order)

    def load(where: WeightPlacement, report: Callable[[float], None]) -> Model:
        return load_model(config, folder, where, parts, load_format=load_format, on_progress=report)

    return load(placement, on_progress) if vault is None else load_shared(load, placement, vault, on_progress)


def measure_capacity(
    settings: WorkerSettings, config: ModelConfig, model: Model, n_kept: int = 0, shared_bytes: int = 0
) -> EngineCapacity:
    """What the gang can hold. Its number of pages is the smallest of its ranks'. n_kept: pages of the gang before; 0: none.
    shared_bytes: of weights that two gangs of the device share."""
    max_length = settings.length_limit(config.max_position)
    if settings.device == "cpu":
        kv_bytes = cpu_kv_bytes(settings.kv_memory_bytes)
    else:
        measured_bytes = _measure_cuda(settings, model, fullest_rows(settings.step_tokens, max_length), shared_bytes)
        kv_bytes = n_kept * model.kv_shape.bytes_per_page or settings.kv_memory_bytes or measured_bytes
    n_pages = count_pages(kv_bytes, model.kv_shape.bytes_per_page, settings.slots, max_length)
    name = torch.cuda.get_device_name(model.device) if settings.device == "cuda" else "cpu"
    return EngineCapacity(
        n_pages=model.parts.group.least(n_pages),
        n_slots=settings.slots,
        max_length=max_length,
        max_step_tokens=settings.step_tokens,
        max_lease_steps=settings.lease_steps,
        lease_s=settings.lease_seconds,
        vocabulary=config.vocabulary,
        device=_describe(name, settings),
    )


def _describe(device: str, settings: WorkerSettings) -> str:
    """What a replica computes with, for people: "NVIDIA H200, bfloat16, 2 ranks, deterministic"."""
    ranks = [f"{settings.tp} ranks"] if settings.tp > 1 else []
    return ", ".join([device, settings.dtype_name, *ranks, *["deterministic"] * settings.deterministic])


def _kept_pages(model: Model, memory: KvMemory) -> int:
    """Pages of the memory of the gang before, if every rank has it; else 0, and it is given up."""
    kept_bytes = memory.kept_bytes()
    n_pages = model.parts.group.least(kept_bytes // model.kv_shape.bytes_per_page - 1)
    if n_pages > 0:
        return n_pages
    if kept_bytes:
        memory.drop_kept()
    return 0


def fullest_rows(step_tokens: int, max_length: int) -> list[int]:
    """Tokens of each row of the largest step: as few prompts as hold step_tokens (or one less, as no row is a single token)."""
    n_whole, rest = divmod(step_tokens, max_length)
    return [max_length] * n_whole + [rest] * (rest > 1 or not n_whole)


def _measure_cuda(settings: WorkerSettings, model: Model, rows: list[int], shared_bytes: int) -> int:
    """Bytes that are left for pages: runs the largest step once, on temporary pages, and subtracts the memory that it needed.

    rows: tokens of each row of that step; shared_bytes: see `measure_capacity`."""
    device = model.device
    kv = KvPages.allocate(model.kv_shape, len(rows) * -(-rows[0] // PAGE_TOKENS), device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before_bytes = torch.cuda.memory_allocated(device)
    run_empty_step(model, kv, rows)
    torch.cuda.synchronize(device)
    activation_bytes = torch.cuda.max_memory_allocated(device) - before_bytes
    del kv
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    needed_bytes = activation_bytes + sampling_bytes(settings.slots, model.config.vocabulary)
    n_gangs = 2 if settings.standby else 1
    return cuda_kv_bytes(
        total_bytes, free_bytes, needed_bytes, settings.memory_share, CUDA_RESERVE_BYTES, n_gangs, shared_bytes
    )


def run_empty_step(model: Model, kv: KvPages, rows: list[int]) -> torch.Tensor:
    """Runs one step of prompts of zeros, and returns the logits [1, vocabulary] of its last token.

    rows: tokens of each prompt, those of one token first; each prompt gets the same number of the pages of `kv`."""
    device, pages_each = model.device, kv.n_pages // len(rows)
    counts = np.array(rows, np.int32)
    offsets = (np.cumsum(counts) - counts).astype(np.int32)
    lengths = torch.from_numpy(counts).to(device)
    positions = torch.cat([torch.arange(count, device=device) for count in rows])
    row_of_token = torch.repeat_interleave(torch.arange(len(rows), device=device), lengths.long())
    step = StepTensors(
        token_ids=torch.zeros(len(positions), dtype=torch.int64, device=device),
        positions=positions,
        slot_mapping=row_of_token * (pages_each * PAGE_TOKENS) + positions,
        page_table=torch.arange(len(rows) * pages_each, dtype=torch.int32, device=device).view(len(rows), pages_each),
        lengths=lengths,
        n_decode=next((index for index, count in enumerate(rows) if count != 1), len(rows)),
        row_starts=np.zeros(len(rows), np.int32),
        row_counts=counts,
        row_offsets=offsets,
        sample_index=torch.full((1,), len(positions) - 1, dtype=torch.int64, device=device),
    )
    return model.logits(model.forward(step, kv))
