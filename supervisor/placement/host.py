"""Finds the GPUs of this host and reads the model's configuration, to plan the placement. Reads NVML and headers of files only,
so a start that cannot succeed is refused within half a second."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from typing import Any

from actors.gpu_monitor.nvml_handles import handle_of, text_of
from gpu_workers.cpu.instructions import has_exact_products, has_int8_dot
from gpu_workers.embedding.model_files import check_model
from gpu_workers.layers.vector_bytes import check_small_places
from gpu_workers.model_store.model_config import ModelConfig
from gpu_workers.model_store.weight_files import check_whole, weight_files
from gpu_workers.models.resolve import ModelKind, find_model, read_config
from gpu_workers.runner.memory_estimate import memory_bytes
from gpu_workers.settings import check_disk_cache, check_host_dtype, check_host_least, check_kv_least
from messages.descriptors.open_files import FILES_BESIDE_CONNECTIONS
from messages.errors import ConfigError
from supervisor.config.server_config import ServerConfig
from supervisor.placement.fallback_room import check_fallback
from supervisor.placement.hardware import Gpu, Host
from supervisor.placement.placement import Placement, PlacementRequest
from supervisor.placement.placement_offers import (
    check_deterministic,
    check_kv_dtype,
    check_quantization,
    plan_or_offer,
)
from supervisor.placement.plan import check_gpus, plan_placement

_FILES, _FILES_OF_LINKS = 128, 8
_FEWEST_CONNECTIONS = 64
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"


def check_host(config: ServerConfig) -> None:
    """Check what no model would change, before one is fetched: the number of GPUs, and what these devices, or the CPU cores,
    can compute with. How many ranks a model can have is not asked. Raises: ConfigError naming the key."""
    check_disk_cache(config.worker)
    _check_embedding_device(config)
    host = _this_host(config)
    asked = _asked(config)
    check_gpus(host, asked)
    n_gpus = len(host.gpus) if asked.gpus is None else asked.gpus
    placement = plan_placement(host, None, replace(asked, gpus=n_gpus, tp=0, replicas=0))
    _check_devices(placement, config)
    if not placement.gpus:  # GPUs compute with a dtype that is chosen with the model
        check_quantization(placement)


def plan_start(config: ServerConfig) -> Placement:
    """Where the ranks of this configuration run on this host, which has the models that it names, or can fetch them. Downloads
    the configuration of a model that is not here yet.

    Raises: ConfigError naming the key.
    """
    check_disk_cache(config.worker)
    host = _this_host(config)
    asked = _asked(config)
    if not (asked.tp or asked.replicas):
        check_gpus(host, asked)  # without waiting for a model that is to be downloaded
    _check_embedder(config)
    check_fallback(config, host)
    try:
        model = _read_model(config)
    except ConfigError:
        check_gpus(host, asked)  # no model makes this number possible
        raise
    placement = placed(host, model, config)
    _check_open_files(n_children(config, placement))
    return placement


def placed(host: Host, model: ModelConfig | None, config: ServerConfig) -> Placement:
    """Where the ranks of `model` would run on any `host`. Looks at nothing else. Raises: ConfigError naming the key."""
    if model is not None and model.max_position and config.max_length > model.max_position:
        raise ConfigError(f"max_length: expected at most {model.max_position} (the model's), got {config.max_length}")
    if model is not None and config.worker.host_cache_dtype != "same":
        check_small_places(model.head_dim)
    placement = plan_or_offer(host, model, _asked(config))
    _check_devices(placement, config)
    check_quantization(placement)
    return placement


def _this_host(config: ServerConfig) -> Host:
    gpus = () if config.gpus == 0 else find_gpus(os.environ.get(VISIBLE_VARIABLE))
    return Host(gpus, memory_bytes(), has_exact_products(), has_int8_dot())


def _check_devices(placement: Placement, config: ServerConfig) -> None:
    check_deterministic(placement, config.worker.attention)
    check_kv_dtype(placement, config.worker.kv_dtype)
    check_kv_least(config.worker, placement.device)
    check_host_least(config.worker, placement.device)
    check_host_dtype(config.worker)


def _asked(config: ServerConfig) -> PlacementRequest:
    standby, pp = config.standby, config.pp
    return PlacementRequest(config.gpus, config.tp, config.replicas, config.max_length, config.worker, standby, pp)


def _read_model(config: ServerConfig) -> ModelConfig | None:
    """The configuration of the model, whose weights are there too or can be fetched. Raises: ConfigError."""
    try:
        model = read_config(config.model)
        if config.worker.load_format != "random":
            _check_weights(config.model)
    except (ValueError, OSError) as error:
        raise ConfigError(f"model: {error}") from None
    return model


def _check_embedder(config: ServerConfig) -> None:
    """Check that the embedding model and the device for it are there. Raises: ConfigError naming the key."""
    if not config.embedding_model:
        return
    check_model(config.embedding_model, config.embedder)
    _check_embedding_device(config)


def _check_embedding_device(config: ServerConfig) -> None:
    device = config.embedder.device
    if not config.embedding_model or device == "cpu":
        return
    n_gpus = len(find_gpus(os.environ.get(VISIBLE_VARIABLE)))
    if int(device.partition(":")[2] or 0) >= n_gpus:
        offers = " or ".join(["cpu", *(f"cuda:{index}" for index in range(n_gpus))])
        raise ConfigError(f"embedder.device: expected {offers} ({n_gpus or 'no'} GPUs are visible here), got {device}")


def n_children(config: ServerConfig, placement: Placement) -> int:
    """The number of children of the supervisor; `build_tree` makes them."""
    n_gangs = 2 if placement.has_standby else 1
    of_replica = placement.has_vault(config.asks_vault) + n_gangs * placement.ranks_each + 1
    of_fallback = 2 if config.fallback_model else 0
    has_monitor = config.gpu_monitor.enabled and bool(config.gpu_monitor.devices or placement.gpus)
    n_single = config.holds_connections + config.api_keys + has_monitor + 1 + config.speculate
    return n_single + placement.replicas * of_replica + of_fallback + config.gateways


def files_needed(n_children: int) -> int:
    """How many open files each process of a server with so many children must be allowed.

    Every process has links to all others: measured are 36 + 3 for each child in children (16 of them in reserve), 26 + 6 for
    each in the supervisor. A gateway keeps 256 for everything but connections of clients, and must be able to serve some of
    these.
    """
    return max(FILES_BESIDE_CONNECTIONS, _FILES + _FILES_OF_LINKS * n_children) + _FEWEST_CONNECTIONS


def _check_open_files(n_children: int) -> None:
    """Check that this user may open as many files as the processes of a server with so many children need.

    Raises: ConfigError with the number that is needed.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_needed(n_children)
    if most != resource.RLIM_INFINITY and most < needed:
        raise ConfigError(
            f"open files: expected a hard limit of at least {needed} for {n_children} processes, got {most} (ulimit -Hn)"
        )


def _check_weights(name: str) -> None:
    """Check that the folder of a model holds all of its weights. Models that are downloaded later are not checked; of a GGUF
    file, reading its configuration does that.

    Raises: WeightsError, OSError.
    """
    found = find_model(name)
    if found.kind is ModelKind.FOLDER and found.path is not None:
        for path in weight_files(found.path):
            check_whole(path)


def find_gpus(visible: str | None, nvml: Any = None) -> tuple[Gpu, ...]:
    """The devices that CUDA would show for this value of CUDA_VISIBLE_DEVICES (None: not set), in its order.

    As CUDA does, it stops at the first entry that names no device. Without NVIDIA's driver there are none. `nvml`: a stand-in
    for the pynvml module.
    """
    if nvml is None:
        import pynvml as nvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        indices = range(nvml.nvmlDeviceGetCount())
        names = [str(index) for index in indices] if visible is None else visible.split(",")
        found: list[Gpu] = []
        for name in names:
            gpu = _find_gpu(nvml, name.strip())
            if gpu is None:
                break
            found.append(gpu)
        return tuple(found)
    finally:
        nvml.nvmlShutdown()


def _find_gpu(nvml: Any, name: str) -> Gpu | None:
    """One entry of CUDA_VISIBLE_DEVICES: an index, or a UUID or its beginning."""
    try:
        handle = handle_of(nvml, name)
        if handle is None:
            return None
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total
        try:
            capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        except nvml.NVMLError:  # a MIG slice: ask for its device
            capability = nvml.nvmlDeviceGetCudaComputeCapability(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
        return Gpu(name, text_of(nvml.nvmlDeviceGetName(handle)), int(memory), (int(capability[0]), int(capability[1])))
    except nvml.NVMLError:
        return None
