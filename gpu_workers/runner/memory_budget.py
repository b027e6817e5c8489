"""How many pages fit: arithmetic on bytes only; `rank_device.py` measures. The ranks of a gang agree on the smallest number."""

from __future__ import annotations

from gpu_workers.runner.memory_estimate import default_cpu_kv_bytes, memory_bytes
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS

MIN_PAGES = 4
_CONTEXT_BYTES = 1 << 30  # more than the CUDA context of one process takes


def cpu_kv_bytes(wanted_bytes: int) -> int:
    """Memory for keys and values on a CPU: `wanted_bytes`, or if that is 0, an eighth of the machine's but at most 2 GiB.

    Raises: ConfigError when more is wanted than the machine has. Pages are first touched under load, which would fail then.
    """
    if wanted_bytes > memory_bytes():
        raise ConfigError(f"worker.kv_memory_bytes: expected at most {memory_bytes()} (memory here), got {wanted_bytes}")
    return wanted_bytes or default_cpu_kv_bytes(memory_bytes())


def cuda_kv_bytes(
    total_bytes: int,
    free_bytes: int,
    activation_bytes: int,
    memory_share: float,
    reserve_bytes: int,
    n_gangs: int = 1,
    shared_bytes: int = 0,
    others_bytes: int = 0,
) -> int:
    """Memory for keys and values on a CUDA device, after the weights are loaded.

    free_bytes: as the driver reports it; activation_bytes: peak of the largest step; reserve_bytes: left for graphs,
    collectives and fragmentation; n_gangs: gangs that share the device and the keys and values, of which one is loaded;
    shared_bytes: of the weights, if the gangs share them; others_bytes: of other programs on the device, which do not count
    towards the share. The result is negative when even the weights do not fit into the share, or into what is free.
    """
    step_bytes = activation_bytes + reserve_bytes
    own_bytes = max(0, total_bytes - free_bytes - others_bytes) + step_bytes - shared_bytes
    of_share_bytes = int(total_bytes * memory_share) - shared_bytes - n_gangs * own_bytes
    return min(of_share_bytes, free_bytes - step_bytes - (n_gangs - 1) * own_bytes)


def bytes_of_others(used_bytes: int) -> int:
    """Memory that other programs have on a CUDA device. used_bytes: of the whole device, before this process has loaded
    anything: its CUDA context is in it."""
    return max(0, used_bytes - _CONTEXT_BYTES)


def count_pages(kv_bytes: int, bytes_per_page: int, n_slots: int, max_length: int) -> int:
    """Pages that fit into `kv_bytes`, at most as many as all slots can fill.

    Raises: ConfigError when not even one short sequence fits.
    """
    check_pages(kv_bytes, bytes_per_page, n_slots, max_length)
    return min(kv_bytes // bytes_per_page, _useful_pages(n_slots, max_length))


def count_least_pages(least_bytes: int, bytes_per_page: int, n_pages: int) -> int:
    """Pages that are in use at the least, where their number follows the load, at most `n_pages`; 0: all, because `least_bytes`
    is 0."""
    return min(max(-(-least_bytes // bytes_per_page), MIN_PAGES), n_pages) if least_bytes else 0


def check_pages(kv_bytes: int, bytes_per_page: int, n_slots: int, max_length: int) -> None:
    """Raises: ConfigError when not even one short sequence fits into `kv_bytes`."""
    if kv_bytes // bytes_per_page < min(MIN_PAGES, _useful_pages(n_slots, max_length)):
        raise ConfigError(
            f"worker.kv_memory_bytes: expected room for {MIN_PAGES} pages of {bytes_per_page} bytes, got {kv_bytes} bytes"
        )


def _useful_pages(n_slots: int, max_length: int) -> int:
    return n_slots * -(-max_length // PAGE_TOKENS)
