"""Builds a model on weights that lie in the vault, or loads them and puts them there; see `vault/weight_vault.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog
import torch

from gpu_workers.layers.cpu_linear import can_pack, can_place_packed, packs_weights
from gpu_workers.models.model import Model
from gpu_workers.models.shared_weights import CountedWeights, MappedWeights, WrittenWeights, read_index
from gpu_workers.models.weights import WeightPlacement
from gpu_workers.vault.region_tensor import make_region
from gpu_workers.vault.weight_vault import SealedWeights, WeightVault

OnProgress = Callable[[float], None]
Load = Callable[[WeightPlacement, OnProgress], Model]


def load_shared(load: Load, placement: WeightPlacement, vault: WeightVault, on_progress: OnProgress) -> Model:
    """The model that `load` builds, on weights in shared memory. It is loaded once, by the first process that asks.

    load: builds the whole model; it reads the checkpoint if the memory of the placement says so. Raises: as `load` does;
    OSError when there is no memory."""
    if can_pack(placement.dtype) and not can_place_packed(placement.dtype):
        structlog.get_logger().warning("weights are not shared", reason="this torch cannot place packed weights")
        return load(placement, on_progress)
    with vault.alone(lambda: on_progress(0.0)) as is_alone:
        if not is_alone:
            structlog.get_logger().warning(
                "weights are not shared", reason="another process has been loading them for too long"
            )
            return load(placement, on_progress)
        began_s = time.monotonic()
        found = vault.open_sealed()
        model = _map(load, placement, vault, *found) if found is not None else None
        was_there = model is not None
        if model is None:
            model = _load_and_seal(load, placement, vault, on_progress)
        took_s = round(time.monotonic() - began_s, 3)
        structlog.get_logger().info("weights mapped", reused=was_there, bytes=vault.shared_bytes, seconds=took_s)
        return model


def _map(load: Load, placement: WeightPlacement, vault: WeightVault, descriptor: int, sealed: SealedWeights) -> Model | None:
    """The model on sealed memory. If the memory cannot be used, the vault drops it and this returns None."""
    try:
        vault.begin_check(descriptor, sealed)
        weights = _read(placement.device, descriptor, sealed)
    except (OSError, ValueError) as error:
        structlog.get_logger().error("weights in the vault cannot be used and are loaded again", reason=str(error))
        os.close(descriptor)
        vault.drop()
        return None
    vault.adopt(descriptor, sealed)
    return load(replace(placement, memory=weights), _ignore)


def _read(device: torch.device, descriptor: int, sealed: SealedWeights) -> MappedWeights:
    """Map sealed memory and compare its checksum. Raises: OSError or ValueError when it cannot be used."""
    region, memory = make_region(sealed.n_bytes, device)
    region.share(descriptor, is_read_only=True)
    index = read_index(memory, sealed)
    if index is None:
        raise ValueError("checksum of the weights: expected that of the loader, got another one")
    return MappedWeights(memory, index)


def _load_and_seal(load: Load, placement: WeightPlacement, vault: WeightVault, on_progress: OnProgress) -> Model:
    counted = CountedWeights(is_packed=packs_weights(placement.device, placement.dtype))
    load(WeightPlacement(torch.device("meta"), placement.dtype, counted), _ignore)
    region, memory = make_region(counted.n_bytes, placement.device)
    descriptor = region.make()
    try:
        region.share(descriptor)
        written = WrittenWeights(memory)
        with ThreadPoolExecutor(1) as beside:
            pages = beside.submit(region.use_large_pages)
            model = load(replace(placement, memory=written), on_progress)
        pages.result()
        sealed = written.seal()
        region.finish(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    vault.adopt(descriptor, sealed)
    return model


def _ignore(fraction: float) -> None:
    pass
