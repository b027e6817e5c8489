"""Gives a model runner memory of the host for copies of its pages: the host tier, and the exchange with other replicas.

Ordinary memory on CPU cores, pinned memory and copies beside the steps on GPUs."""

from __future__ import annotations

from gpu_workers.layers.kv_pages import KvPages
from gpu_workers.pages.copy_queue import CopyQueue
from gpu_workers.pages.host_form import HostForm
from gpu_workers.runner.model_runner import ModelRunner
from gpu_workers.vault.exchange_places import ExchangePlaces
from messages.errors import ConfigError

_PIN_S = 600.0  # for all places; a GiB takes about a third of a second


def add_host_tier(runner: ModelRunner, kv: KvPages, form: HostForm, n_places: int, is_kept: bool) -> None:
    """Let the runner have `n_places` places for the pages of `kv`. is_kept: their memory is exchanged for that in the vault
    when the first epoch begins. Call it before the warm-up has ended: it may compile kernels.

    Raises: OSError when the machine has no memory for the places; ConfigError when a GPU may not copy to it."""
    if kv.storage.device.type == "cpu":
        runner.host_tier = form.make_places(kv.as_bytes(), n_places)
        return
    from gpu_workers.pages.cuda.cuda_pinning import CudaPinning

    copies = _copies_of(runner, kv, is_compressed=form.form is not None, is_adaptive=form.is_adaptive)
    runner.host_tier = places = form.queue_places(copies, n_places, CudaPinning(kv.storage.device))
    if is_kept:
        return
    places.open()
    if not places.wait_ready(_PIN_S):
        n_bytes = places.region.n_bytes
        raise ConfigError(f"worker.host_cache_bytes: expected memory that can be pinned, got {n_bytes} bytes that cannot")


def add_exchange(runner: ModelRunner, kv: KvPages, n_places: int) -> None:
    """Let the runner have `n_places` places that other replicas can read. Their memory lies in the vault. Call it before the
    warm-up has ended: it may compile a kernel. Raises: OSError when the machine has no memory for the places."""
    if kv.storage.device.type == "cpu":
        runner.exchange = ExchangePlaces(kv.as_bytes(), n_places)
        return
    from gpu_workers.pages.cuda.cuda_pinning import CudaPinning
    from gpu_workers.pages.queued_exchange import PinnedExchange

    pinning = CudaPinning(kv.storage.device)
    runner.exchange = PinnedExchange(_copies_of(runner, kv), n_places, kv.shape.bytes_per_page, pinning)


def _copies_of(runner: ModelRunner, kv: KvPages, *, is_compressed: bool = False, is_adaptive: bool = False) -> CopyQueue:
    """The copies of the runner's pages: one stream, so that all of them run in the order in which they were queued.
    is_compressed, is_adaptive: as of `cuda_copies`; the first call decides."""
    from gpu_workers.pages.cuda.cuda_copy_stream import cuda_copies  # imports Triton

    if runner.page_copies is None:
        runner.page_copies = cuda_copies(kv, is_compressed=is_compressed, is_adaptive=is_adaptive)
    return runner.page_copies
