"""Gives a model runner its host tier: places of ordinary memory on CPU cores, of pinned memory and with copies of their own on
GPUs."""

from __future__ import annotations

from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.pages.host_form import HostForm
from gpu_workers.runner.model_runner import ModelRunner
from messages.errors import ConfigError

_PIN_S = 600.0  # for all places; a GiB takes about a third of a second


def add_host_tier(runner: ModelRunner, kv: KvPages, form: HostForm, n_places: int, is_kept: bool) -> None:
    """Let the runner have `n_places` places for the pages of `kv`, on GPUs for pages as they are. is_kept: their memory is
    exchanged for that in the vault when the first epoch begins. Call it before the warm-up has ended: it may compile a kernel.

    Raises: OSError when the machine has no memory for the places; ConfigError when a GPU may not copy to it."""
    if kv.storage.device.type == "cpu":
        runner.host_tier = form.make_places(kv.as_bytes(), n_places)
        return
    from gpu_workers.pages.cuda_copy_stream import cuda_places  # imports Triton

    runner.host_tier = runner.queued_places = places = cuda_places(kv, n_places)
    if is_kept:
        return
    places.open()
    if not places.wait_ready(_PIN_S):
        n_bytes = places.region.n_bytes
        raise ConfigError(f"worker.host_cache_bytes: expected memory that can be pinned, got {n_bytes} bytes that cannot")
