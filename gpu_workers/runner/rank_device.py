"""What loading does differently on each kind of device: threads, the group of ranks, memory for keys and values, warm-up.

`backend.py` chooses how the model computes there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import torch

from gpu_workers.cuda.symmetric_group import SymmetricGroup
from gpu_workers.engine import Engine
from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.layers.tensor_group import DistributedGroup, TensorGroup
from gpu_workers.models.model import Model
from gpu_workers.pipeline.link import DistributedLink, LoneStageRank, StageLink, StagePlace, open_stages, stage_group
from gpu_workers.runner.empty_step import even_rows, fullest_rows, run_empty_step
from gpu_workers.runner.memory_budget import bytes_of_others, cpu_kv_bytes, cuda_kv_bytes
from gpu_workers.runner.memory_estimate import CUDA_RESERVE_BYTES, sampling_bytes, slot_bytes
from gpu_workers.runner.warm_up import warm_up
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.kept_memory import KeptMemory
from gpu_workers.vault.rank_vault import RankVault
from messages.steps import PAGE_TOKENS

_LONGER_ROWS = 64  # enough for a step that fits no graph
_GANG_TIMEOUT_S = 600.0  # ranks load at different speeds; the supervisor detects a dead rank long before this


class RankDevice(Protocol):
    """The device of a rank while its model is loaded."""

    device: torch.device

    @property
    def name(self) -> str:
        """The device for people: "cpu", "NVIDIA H200"."""
        ...

    @property
    def captures_steps(self) -> bool:
        """True if steps are to be captured where the back ends allow it."""
        ...

    def join(self, rendezvous: Path) -> TensorGroup:
        """Joins the other ranks of the gang, which give the same path, and waits until all have joined."""
        ...

    def join_stages(self, rendezvous: Path) -> tuple[TensorGroup, StageLink]:
        """The same for a gang with stages: the group of this rank's stage, and the way to the other stages."""
        ...

    def kept_memory(self, kept: RankVault | None) -> KeptMemory | None:
        """The memory whose size decides the number of pages; None: the number does not depend on the gang before. kept: what of
        the rank lies in the vault."""
        ...

    def kv_bytes(self, model: Model, max_length: int, n_kept: int, shared_bytes: int) -> int:
        """Bytes for the pages of keys and values of a loaded model. max_length: tokens of one sequence; n_kept: pages of the
        gang before, 0 if there are none; shared_bytes: of weights that two gangs of the device share.

        Raises: ConfigError when more is wanted than the machine has."""
        ...

    def warm_large_steps(self, engine: Engine, model: Model, kv: KvPages) -> None:
        """Runs steps that captured steps do not cover, so that nothing is compiled for them while requests wait. engine: over
        `model` and `kv`, without captured steps."""
        ...


class CpuDevice(RankDevice):
    """The cores of this machine. Nothing is compiled at the first step of its kind, so no large step is run in advance."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings, self.device = settings, torch.device("cpu")

    @property
    def name(self) -> str:
        """The name "cpu"."""
        return "cpu"

    @property
    def captures_steps(self) -> bool:
        """True: steps are captured as native programs."""
        return True

    def join(self, rendezvous: Path) -> TensorGroup:
        """Joins the other ranks with the collectives of torch. rendezvous: the same path on all of them."""
        return DistributedGroup.join(self._settings.rank, self._settings.tp, rendezvous, self.device, _GANG_TIMEOUT_S)

    def join_stages(self, rendezvous: Path) -> tuple[TensorGroup, StageLink]:
        """Joins the other ranks with the collectives and messages of torch."""
        place = _place_of(self._settings)
        groups = open_stages(place, rendezvous, self.device, _GANG_TIMEOUT_S)
        return stage_group(place, groups, self.device), DistributedLink(place, groups, self.device)

    def kept_memory(self, kept: RankVault | None) -> KeptMemory | None:
        """None: the number of pages follows from settings and machine alone."""
        return None

    def kv_bytes(self, model: Model, max_length: int, n_kept: int, shared_bytes: int) -> int:
        """The bytes that the settings want, or a share of the machine's memory. Raises: ConfigError when more is wanted than
        there is."""
        return cpu_kv_bytes(self._settings.kv_memory_bytes)

    def warm_large_steps(self, engine: Engine, model: Model, kv: KvPages) -> None:
        """Does nothing."""


class CudaDevice(RankDevice):
    """One GPU, which becomes torch's current device."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings, self.device = settings, torch.device("cuda", settings.device_index)
        torch.cuda.set_device(self.device)
        free_bytes, total_bytes = torch.cuda.mem_get_info(self.device)
        self._others_bytes = bytes_of_others(total_bytes - free_bytes)

    @property
    def name(self) -> str:
        """The name that the driver has for it, such as "NVIDIA H200"."""
        return torch.cuda.get_device_name(self.device)

    @property
    def captures_steps(self) -> bool:
        """True if the settings want CUDA graphs."""
        return self._settings.cuda_graphs

    def join(self, rendezvous: Path) -> TensorGroup:
        """Joins the other ranks and shares memory for activations with them. rendezvous: the same path on all of them."""
        settings = self._settings
        group = SymmetricGroup.join(settings.rank, settings.tp, rendezvous, self.device, _GANG_TIMEOUT_S)
        group.share_memory(getattr(torch, settings.dtype_name))
        return group

    def join_stages(self, rendezvous: Path) -> tuple[TensorGroup, StageLink]:
        """Joins the other ranks. Those of one stage share memory for activations; stages exchange messages of NCCL."""
        settings, place = self._settings, _place_of(self._settings)
        groups = open_stages(place, rendezvous, self.device, _GANG_TIMEOUT_S)
        link = DistributedLink(place, groups, self.device)
        if groups.tensor is None:
            return LoneStageRank(self.device), link
        group = SymmetricGroup(place.rank, place.tp, self.device, groups.tensor)
        group.share_memory(getattr(torch, settings.dtype_name))
        return group, link

    def kept_memory(self, kept: RankVault | None) -> KeptMemory | None:
        """The KV memory in the vault, whose size the gang before has measured; None without a vault."""
        return kept.kv if kept is not None else None

    def kv_bytes(self, model: Model, max_length: int, n_kept: int, shared_bytes: int) -> int:
        """The bytes that the gang before had; else those that the settings want; else those that are free."""
        rows = fullest_rows(self._settings.step_tokens, max_length)
        measured_bytes = self._measure(model, rows, self._settings.slots * slot_bytes(max_length), shared_bytes)
        return n_kept * model.kv_shape.bytes_per_page or self._settings.kv_memory_bytes or measured_bytes

    def _measure(self, model: Model, rows: list[int], table_bytes: int, shared_bytes: int) -> int:
        """Bytes that are left for pages: runs the largest step once, on temporary pages, and subtracts the memory that it
        needed, and that of tables. rows: tokens of each row of that step; shared_bytes: as in `kv_bytes`."""
        settings, device = self._settings, model.device
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
        beside_tokens = settings.beside_tokens(model.config.layer_parameters)
        activation_bytes += activation_bytes * beside_tokens // settings.step_tokens
        needed_bytes = activation_bytes + table_bytes + sampling_bytes(settings.slots, model.config.vocabulary)
        n_gangs = 2 if settings.standby else 1
        return cuda_kv_bytes(
            total_bytes,
            free_bytes,
            needed_bytes,
            settings.memory_share,
            CUDA_RESERVE_BYTES,
            n_gangs,
            shared_bytes,
            self._others_bytes,
        )

    def warm_large_steps(self, engine: Engine, model: Model, kv: KvPages) -> None:
        """Runs long prompts, alone and beside rows of one token, and the first step of a promoted standby, which is the last
        page of every sequence at once. Triton takes seconds for each kernel that its cache lacks. There is a kernel for each
        range of the number of rows of one token; `kernels/launch.py` says what else makes variants of a kernel."""
        warm_up(engine)
        capacity = engine.capacity()
        most_rows = min(capacity.n_slots, capacity.max_step_tokens // PAGE_TOKENS, kv.n_pages)
        for n_single in (0, *model.parts.attention.decode_row_counts(most_rows - 1)) if most_rows else ():
            longer = [PAGE_TOKENS] * min(_LONGER_ROWS, most_rows - n_single)
            run_empty_step(model, kv, [1] * n_single + longer)
        most_prompts = -(-capacity.max_step_tokens // capacity.max_length)
        most_tokens = min(capacity.max_step_tokens, kv.n_pages // most_prompts * PAGE_TOKENS)
        for n_tokens in model.parts.ops.token_counts(most_tokens):
            run_empty_step(model, kv, even_rows(n_tokens, capacity.max_length))


def _place_of(settings: WorkerSettings) -> StagePlace:
    return StagePlace(settings.tensor_rank, settings.tp, settings.stage, settings.pp)


def device_of(settings: WorkerSettings) -> RankDevice:
    """The device of the settings. Sets torch's number of threads and its current device. Raises: torch's errors for a missing
    device."""
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(settings.threads or max(1, cores // settings.cpu_ranks))
    return CpuDevice(settings) if settings.device == "cpu" else CudaDevice(settings)
