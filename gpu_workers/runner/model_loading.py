"""Builds a warmed-up model runner from settings: gang, weights, memory, captured steps. Each phase is reported.

`rank_device.py` has what is done differently on each kind of device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from gpu_workers.batch.device_state import allocate_device_state
from gpu_workers.batch.step_gate import StepGate
from gpu_workers.disk.place_tag import place_bytes
from gpu_workers.engine import ReportLoading
from gpu_workers.grammar.grammar_table import GrammarTable
from gpu_workers.grammar.vocabulary import find_vocabulary
from gpu_workers.layers.int4_places import Int4Places
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.shard import shard_model
from gpu_workers.layers.tensor_group import FixedOrderGroup, SingleRank, TensorGroup
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.models.architectures import read_model_config
from gpu_workers.models.model import Model, RankParts
from gpu_workers.models.registry import load_model
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.pages.host_form import HostForm
from gpu_workers.pipeline.link import StagedGroup, StageParts
from gpu_workers.pipeline.stage import stage_of
from gpu_workers.runner.backend import (
    PAGE_DTYPES,
    AttentionChoice,
    CapturedSteps,
    capture_steps,
    choose_backend,
    deterministic_sampler,
    with_gates,
)
from gpu_workers.runner.host_memory import add_exchange, add_host_tier
from gpu_workers.runner.memory_budget import count_least_pages, count_pages
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.runner.rank_device import RankDevice, device_of
from gpu_workers.runner.stage_runner import make_runner
from gpu_workers.runner.warm_up import warm_up
from gpu_workers.runner.weight_sharing import load_shared
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.kept_memory import KeptMemory
from gpu_workers.vault.rank_vault import RankVault
from gpu_workers.vault.weight_vault import WeightVault
from messages.steps import EngineCapacity

_RENDEZVOUS = "rendezvous"


def load_model_runner(
    settings: WorkerSettings, gang_dir: Path, report: ReportLoading, kept: RankVault | None = None
) -> ModelRunner:
    """The engine for a model folder, warmed up.

    kept: what outlives this process; None: nothing does.
    Raises: ConfigError, ModelConfigError or WeightsError naming what does not fit; torch's errors for a missing device."""
    device = device_of(settings)
    config = read_model_config(Path(settings.model_folder))
    vocabulary = find_vocabulary(Path(settings.model_folder), config.vocabulary)  # is made beside the waits for the device
    model = build_model(
        config,
        Path(settings.model_folder),
        WeightPlacement(device.device, getattr(torch, settings.dtype_name), quantization=settings.quantization_name),
        group=_join_gang(device, settings, config, gang_dir, report),
        attention=settings.attention,
        deterministic=settings.deterministic,
        page_dtype=PAGE_DTYPES[settings.kv_dtype],
        load_format="random" if settings.load_format == "random" else "safetensors",
        on_progress=lambda fraction: report("weights", fraction),
        vault=kept.weights if kept is not None else None,
    )
    report("memory", 0.0)
    memory = device.kept_memory(kept)
    n_kept = _kept_pages(model, memory) if memory is not None else 0
    capacity = measure_capacity(device, settings, config, model, n_kept, kept.shared_bytes if kept is not None else 0)
    kv = _allocate_pages(model, capacity, memory)
    state = allocate_device_state(capacity.n_slots, capacity.max_length, capacity.n_pages, device.device)
    model.parts.attention.gate = StepGate(model.device) if capacity.runs_beside else None
    sampler = deterministic_sampler(state) if settings.deterministic else None
    device.warm_large_steps(make_runner(model, kv, state, capacity, CapturedSteps(), sampler), model, kv)
    captured = CapturedSteps()
    if device.captures_steps:
        captured = capture_steps(model, kv, state, capacity.max_step_tokens, lambda fraction: report("graphs", fraction))
    runner = make_runner(model, kv, state, capacity, captured, sampler, GrammarTable(vocabulary))
    _add_places(runner, kv, _host_form_of(settings, model), capacity, is_kept=kept is not None)
    report("warm up", 0.0)
    runner.end_warm_up(warm_up(runner))
    report("warm up", 1.0)
    return runner


def _add_places(runner: ModelRunner, kv: KvPages, host: HostForm, capacity: EngineCapacity, is_kept: bool) -> None:
    """Memory of the host for copies of pages: of evicted ones, and of those that other replicas want. is_kept: as for
    `add_host_tier`."""
    if capacity.n_host_pages:
        add_host_tier(runner, kv, host, capacity.n_host_pages, is_kept)
    if capacity.n_exchange_pages:
        add_exchange(runner, kv, capacity.n_exchange_pages)


def _join_gang(
    device: RankDevice, settings: WorkerSettings, config: ModelConfig, gang_dir: Path, report: ReportLoading
) -> TensorGroup | StagedGroup:
    """Joins the other ranks of this incarnation of the gang, and waits until all have joined."""
    if settings.n_ranks == 1:
        return SingleRank()
    report("gang", 0.0)
    if settings.pp == 1:
        return device.join(gang_dir / _RENDEZVOUS)
    group, link = device.join_stages(gang_dir / _RENDEZVOUS)
    return StagedGroup(group, StageParts(stage_of(config, settings.stage, settings.pp), link))


def build_model(
    config: ModelConfig,
    folder: Path,
    placement: WeightPlacement,
    *,
    group: TensorGroup | StagedGroup | None = None,
    attention: AttentionChoice = "auto",
    deterministic: bool = False,
    page_dtype: torch.dtype | None = None,
    load_format: str = "safetensors",
    on_progress: Callable[[float], None] = lambda fraction: None,
    vault: WeightVault | None = None,
) -> Model:
    """The rank's part of the model, computed by the back ends of its device. group None: a single rank; without stages it has
    the whole model. vault: shares the weights with other processes of the rank; None: they are this process's own. page_dtype:
    see `choose_backend`.

    Raises: ConfigError for attention, pages, quantization or deterministic kernels that device or model do not have,
    ValueError for a model that cannot be split over the group, and what `load_model` raises."""
    group, stages = (group.group, group.stages) if isinstance(group, StagedGroup) else (group or SingleRank(), None)
    shard = shard_model(config, group.rank, group.size)
    backend = choose_backend(placement, config, shard, attention, deterministic=deterministic, page_dtype=page_dtype)
    in_order = FixedOrderGroup(group) if deterministic else group
    parts = RankParts(shard, backend.ops, backend.attention, in_order, page_dtype, stages)

    def load(where: WeightPlacement, report: Callable[[float], None]) -> Model:
        return load_model(config, folder, where, parts, load_format=load_format, on_progress=report)

    return load(placement, on_progress) if vault is None else load_shared(load, placement, vault, on_progress)


def measure_capacity(
    device: RankDevice, settings: WorkerSettings, config: ModelConfig, model: Model, n_kept: int = 0, shared_bytes: int = 0
) -> EngineCapacity:
    """What the gang can hold. Its number of pages is the smallest of its ranks'. n_kept: pages of the gang before; 0: none.
    shared_bytes: of weights that two gangs of the device share. Raises: ConfigError when not even one short sequence fits, or
    pages cannot have the form that the host tier should keep."""
    max_length = settings.length_limit(config.max_position)
    kv_bytes = device.kv_bytes(model, max_length, n_kept, shared_bytes)
    n_pages = count_pages(kv_bytes, model.kv_shape.bytes_per_page, settings.slots, max_length)
    host = _host_form_of(settings, model)
    return EngineCapacity(
        n_pages=model.parts.group.least(n_pages),
        n_slots=settings.slots,
        max_length=max_length,
        max_step_tokens=settings.step_tokens,
        max_lease_steps=settings.lease_steps,
        lease_s=settings.lease_seconds,
        vocabulary=config.vocabulary,
        device=_describe(device.name, settings),
        copies_pages=True,
        moves_beside_steps=device.device.type == "cuda",
        page_bytes=settings.tp * model.kv_shape.bytes_per_page * config.n_layers // model.kv_shape.n_layers,
        host_bytes=settings.n_ranks * settings.host_cache_bytes,
        disk_bytes=settings.n_ranks * settings.disk_cache_bytes,
        prepares_grammars=True,
        beside_tokens=settings.beside_tokens(config.layer_parameters),
        n_least_pages=count_least_pages(settings.kv_least_bytes, model.kv_shape.bytes_per_page, n_pages),
        n_host_pages=model.parts.group.least(host.n_places),
        n_least_host_pages=host.n_least_places,
        n_exchange_pages=model.parts.group.least(settings.exchange_bytes // model.kv_shape.bytes_per_page),
        n_disk_pages=model.parts.group.least(settings.disk_cache_bytes // place_bytes(host.place_bytes)),
    )


def _host_form_of(settings: WorkerSettings, model: Model) -> HostForm:
    """Raises: ConfigError when pages of this model cannot have that form."""
    form = Int4Places(model.kv_shape) if settings.host_cache_dtype != "same" else None
    is_adaptive, is_pinned = settings.host_cache_dtype == "adaptive", settings.device == "cuda"
    sizes = settings.host_cache_bytes, model.kv_shape.bytes_per_page
    return HostForm(*sizes, form, is_adaptive, is_pinned, settings.host_cache_least_bytes)


def _describe(device: str, settings: WorkerSettings) -> str:
    """What a replica computes with, for people: "NVIDIA H200, bfloat16, 2 ranks, deterministic"."""
    weights = [f"{settings.quantization_name} weights"] if settings.quantization_name != "none" else []
    pages = [f"{settings.kv_dtype} keys and values"] if settings.kv_dtype != "auto" else []
    ranks = [f"{settings.n_ranks} ranks"] if settings.n_ranks > 1 else []
    return ", ".join([device, settings.dtype_name, *weights, *pages, *ranks, *["deterministic"] * settings.deterministic])


def _allocate_pages(model: Model, capacity: EngineCapacity, memory: KeptMemory | None) -> KvPages:
    """Memory for the pages of the rank. memory: what outlives this process; None: the pages are its own."""
    kv = KvPages.allocate(model.kv_shape, capacity.n_pages + 1, model.device, is_shared=memory is not None)
    if memory is not None and kv.region is not None:
        memory.reserve(kv.region)
    return with_gates(kv, model) if capacity.n_host_pages else kv


def _kept_pages(model: Model, memory: KeptMemory) -> int:
    """Pages of the memory of the gang before, if every rank has it; else 0, and it is given up."""
    kept_bytes = memory.kept_bytes()
    n_pages = model.parts.group.least(kept_bytes // model.kv_shape.bytes_per_page - 1)
    if n_pages > 0:
        return n_pages
    if kept_bytes:
        memory.drop_kept()
    return 0
