"""Whether the memory of a host has room for the pages that its GPUs copy there. Pure."""

from __future__ import annotations

from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError
from supervisor.placement.placement import Placement
from supervisor.placement.quantities import counted, gib_text


def check_host_cache(memory_bytes: int, placement: Placement, worker: WorkerSettings) -> None:
    """Check the memory for pages that the operator has asked for on GPUs. It is pinned there: nobody else gets it while the
    server runs, and the system cannot swap it. So a quarter of the host's memory stays for everything else.

    A standby has no places of its own. Raises: ConfigError when there is not so much.
    """
    exchange_bytes = worker.exchange_bytes if placement.replicas > 1 else 0
    if placement.device != "cuda" or not worker.host_cache_bytes + exchange_bytes:
        return
    n_ranks = placement.ranks
    most = memory_bytes // 4 * 3 // n_ranks
    if worker.host_cache_bytes + exchange_bytes > most:
        name = "worker.host_cache_bytes + worker.exchange_bytes" if exchange_bytes else "worker.host_cache_bytes"
        raise ConfigError(
            f"{name}: expected at most {most} (three quarters of {gib_text(memory_bytes)} GiB of memory, for"
            f" {counted(n_ranks, 'rank')}), got {worker.host_cache_bytes + exchange_bytes}"
        )
