"""What the supervisor would give worker 0 for a configuration: so that an engine outside of the tree is set up the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpu_workers.models.resolve import resolve_model
from supervisor.config.server_config import ServerConfig
from supervisor.placement.host import plan_start
from supervisor.start_facts import StartFacts
from supervisor.tree import build_tree


@dataclass(frozen=True)
class WorkerChild:
    """Settings and environment of rank 0 of replica 0."""

    settings: bytes
    environment: Mapping[str, str]
    model_folder: Path | None  # None: the hash chain
    vocabulary: int
    n_slots: int


def worker_child(config: ServerConfig) -> WorkerChild:
    """Resolve the model and build the tree as `supervisor start` does, and take the worker out of it.

    Raises: ValueError, ConfigError naming what cannot be had.
    """
    placement = plan_start(config)
    model = resolve_model(config.model)
    facts = StartFacts(
        state_dir=Path(),
        run_dir=Path(),
        listen_fd=-1,
        model_setting=model.setting,
        model_name=model.name,
        model_length=model.config.max_position if model.config else 0,
        placement=placement,
        cores=len(os.sched_getaffinity(0)),
    )
    worker = next(child for group in build_tree(config, facts) for child in group.children if child.name == "worker/0.0")
    vocabulary = model.config.vocabulary if model.config else config.worker.hash_chain_vocabulary
    slots = msgspec.structs.replace(config.worker, device=placement.device).slots
    return WorkerChild(worker.settings, worker.env, model.path, vocabulary, slots)
