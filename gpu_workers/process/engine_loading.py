"""Builds the engine of a rank, or imports ahead of time what that needs. Importing torch and the whole engine takes most of the
time of a start, so nothing of it is imported with this file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from gpu_workers.cuda.early_start import begin_context, begin_digest
from gpu_workers.engine import Engine, ReportLoading
from gpu_workers.large_pages import collapse_soon
from gpu_workers.process.load_errors import explain
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.rank_vault import RankVault
from messages.lifecycle.model_digests import refuse_other_weights

_RUNNER = "gpu_workers.runner"
BuildEngine = Callable[[WorkerSettings, Path, ReportLoading, RankVault | None], Engine]


def build_engine(settings: WorkerSettings, gang_dir: Path, report: ReportLoading, kept: RankVault | None = None) -> Engine:
    """The engine that the settings ask for. Called on the step thread, because importing torch takes seconds.

    kept: what of the rank lies in the vault; None: without a vault.
    Raises: ConfigError with an explanation; any other exception of loading a model.
    """
    if settings.is_hash_chain:
        from gpu_workers.hash_chain_engine import HashChainEngine

        return HashChainEngine(settings)
    if settings.device == "cuda":
        begin_context(settings.device_index)
        begin_digest()
    report("import torch", 0.0)
    from gpu_workers.runner.model_loading import load_model_runner

    report("import torch", 1.0)
    try:
        refuse_other_weights(settings.model_folder, settings.model_digests)
        engine = load_model_runner(settings, gang_dir, report, kept)
        refuse_other_weights(settings.model_folder, settings.model_digests)  # they may have changed while they were read
        return engine
    except Exception as error:
        if (explanation := explain(error, settings)) is None:
            raise
        raise explanation from error


def build_rank(settings: WorkerSettings, gang_dir: Path, report: ReportLoading, kept: RankVault | None = None) -> Engine:
    """As `build_engine`, for a process that is a rank and nothing else: soon after, the memory of a model's rank has large
    pages."""
    engine = build_engine(settings, gang_dir, report, kept)
    if not settings.is_hash_chain:
        collapse_soon()
    return engine


def import_engine(device: str) -> None:
    """Import what `build_engine` uses for a real model on "cpu" or "cuda".

    A spare rank that waits for its spawn spec calls this. It must not touch the device: a spare holds no model, no device
    memory and no device context. A test checks this."""
    if device == "cuda":
        begin_digest()
    importlib.import_module(f"{_RUNNER}.model_loading")
    importlib.import_module(f"{_RUNNER}.backend").import_backend(device)
