"""How many sequences a replica runs at once: memory decides it on one GPU, and the ranks are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.runner.memory_estimate import GIB, RankEstimate
from gpu_workers.settings import WorkerSettings, read_settings
from supervisor.config.server_config import ServerConfig
from supervisor.placement.gpu_room import GpuRoom
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.placement import PlacementRequest
from supervisor.placement.plan import plan_placement
from supervisor.start_facts import StartFacts
from supervisor.tree import build_tree
from tests.support.supervisor.known_models import LLAMA_8B, SMOLLM2

ONE = PlacementRequest(gpus=1)
NOT_URGENT = WorkerSettings(urgent_stream=False)
H200_GIB, A10_GIB = 139.8, 22.5


def host(n_gpus: int, gib: float = H200_GIB) -> Host:
    """A machine with GPUs of so much memory."""
    return Host(tuple(Gpu(str(i), "some GPU", int(gib * GIB), (9, 0)) for i in range(n_gpus)), 64 * GIB)


@pytest.mark.parametrize(
    ("there", "model", "asked", "n_slots"),
    [
        (host(1), SMOLLM2, ONE, 1024),
        (host(1), LLAMA_8B, ONE, 384),
        (host(1), LLAMA_8B, PlacementRequest(gpus=1, worker=NOT_URGENT), 768),
        (host(1, 80.0), LLAMA_8B, PlacementRequest(gpus=1, worker=NOT_URGENT), 384),
        (host(1, 80.0), LLAMA_8B, PlacementRequest(gpus=1, worker=NOT_URGENT, max_length=512), 640),
        (host(1, A10_GIB), LLAMA_8B, PlacementRequest(gpus=1, max_length=8192), 256),
        (host(2), LLAMA_8B, PlacementRequest(gpus=2, tp=2), 0),
        (host(2), LLAMA_8B, PlacementRequest(gpus=2, pp=2), 0),
        (host(1), LLAMA_8B, PlacementRequest(gpus=1, worker=WorkerSettings(deterministic=True)), 0),
        (host(1), LLAMA_8B, PlacementRequest(gpus=1, worker=WorkerSettings(n_slots=300)), 0),
        (host(0), SMOLLM2, PlacementRequest(), 0),
    ],
)
def test_memory_decides_how_many_sequences_run_at_once(
    there: Host, model: ModelConfig, asked: PlacementRequest, n_slots: int
) -> None:
    placement = plan_placement(there, model, asked)
    assert placement.n_slots == n_slots
    assert placement.slots_of(asked.worker) == (asked.worker.n_slots or n_slots)


def test_each_further_sequence_needs_room_for_its_tables_too() -> None:
    worker, length = WorkerSettings(device="cuda", memory_share=1.0), 1 << 20
    slot_bytes = 1024 * 4 + 4 * (length + 1 + length // 16)
    estimate = RankEstimate(0, 0, kv_token_bytes=4)
    for n_bytes, n_slots in ((640 * slot_bytes, 640), (640 * slot_bytes - 1, 512), (200 * slot_bytes, 256)):
        assert GpuRoom(n_bytes, worker).slots(lambda _: estimate, 1, length, has_urgent_steps=False) == n_slots


@pytest.mark.parametrize(("asked", "given"), [(0, 384), (300, 300)])
def test_the_ranks_are_told(asked: int, given: int) -> None:
    config = ServerConfig(worker=WorkerSettings(n_slots=asked))
    placement = plan_placement(host(1), LLAMA_8B, PlacementRequest(gpus=1, worker=config.worker))
    facts = StartFacts(Path("/s"), Path("/r"), 9, "/models/m", "m", 4096, placement, 8)
    children = [child for group in build_tree(config, facts) for child in group.children]
    ranks = [read_settings(child.settings) for child in children if child.name.startswith("worker")]
    assert ranks
    assert {settings.n_slots for settings in ranks} == {given}
