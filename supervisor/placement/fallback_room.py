"""What the fallback model asks of the placement, and whether this host has it: one rank on CPU cores."""

from __future__ import annotations

from dataclasses import replace

from gpu_workers.models.resolve import find_model, read_config
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig
from supervisor.placement.hardware import Host
from supervisor.placement.placement import Placement, PlacementRequest
from supervisor.placement.placement_offers import check_deterministic, check_quantization
from supervisor.placement.plan import plan_placement


def worker_of(config: ServerConfig) -> WorkerSettings:
    """The settings of the fallback model's worker. Tiers, vault and exchange are the main model's alone."""
    own, main = config.fallback, config.worker
    return WorkerSettings(
        dtype=own.dtype,
        quantization=own.quantization,
        kv_memory_bytes=own.kv_memory_bytes,
        n_slots=own.n_slots,
        threads=own.threads,
        deterministic=main.deterministic,
        hash_chain_vocabulary=own.hash_chain_vocabulary,
        hash_chain_step_s=main.hash_chain_step_s,
        hash_chain_pulse=main.hash_chain_pulse,
    )


def plan_fallback(config: ServerConfig, host: Host) -> Placement:
    """The placement of the fallback model: one rank on the CPU cores of `host`.

    Raises: ConfigError; others as `read_config`.
    """
    asked = PlacementRequest(0, 1, 1, config.fallback.max_length, worker_of(config), standby=False)
    return plan_placement(replace(host, gpus=()), read_config(config.fallback_model), asked)


def check_fallback(config: ServerConfig, host: Host) -> None:
    """Check that the fallback model, if there is one, is there or can be fetched, and runs on the CPU cores of `host`.

    Raises: ConfigError naming the key.
    """
    if not config.fallback_model:
        return
    try:
        model = read_config(config.fallback_model)
        name = config.fallback.model_name or find_model(config.fallback_model).name
        main = config.model_name or find_model(config.model).name
    except (ValueError, OSError) as error:
        raise ConfigError(f"fallback_model: {error}") from None
    if name == main:
        raise ConfigError(f"fallback_model: expected another name than the main model's, got {name!r}; set fallback.model_name")
    longest, asked = model.max_position if model is not None else 0, config.fallback.max_length
    if longest and asked > longest:
        raise ConfigError(f"fallback.max_length: expected at most {longest} (the model's), got {asked}")
    try:
        placement = plan_fallback(config, host)
        check_deterministic(placement, "auto")
        check_quantization(placement)
    except ConfigError as error:
        raise ConfigError(f"fallback_model: {error}") from None
