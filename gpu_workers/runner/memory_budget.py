"""How many pages fit: arithmetic on bytes only; `model_loading` measures. The ranks of a gang agree on the smallest number."""

from __future__ import annotations

from gpu_workers.runner.memory_estimate import GIB, memory_bytes
from messages.errors import ConfigError
from messages.steps import PAGE_TOKENS

_CPU_KV_BYTES = 2 * GIB
_CPU_SHARE = 8  # of the machine's memory: one part for keys and values when nothing is said
MIN_PAGES = 4


def cpu_kv_bytes(wanted_bytes: int) -> int:
    """Memory for keys and values on a CPU: `wanted_bytes`, or if that is 0 a modest share of the machine's.

    Raises: ConfigError when more is wanted than there is: pages are taken one by one, so it would be missed under load.
    """
    if wanted_bytes > memory_bytes():
        raise ConfigError(f"worker.kv_memory_bytes: expected at most {memory_bytes()} (memory here), got {wanted_bytes}")
    if wanted_bytes:
        return wanted_bytes
    return min(_CPU_KV_BYTES, memory_bytes() // _CPU_SHARE)


def cuda_kv_bytes(total_bytes: int, free_bytes: int, activation_bytes: int, memory_share: float, reserve_bytes: int) -> int:
    """Memory for keys and values on a CUDA device, once the weights are loaded.

    `free_bytes` is what the driver calls free now; `activation_bytes` the peak of the greatest step; `reserve_bytes` stays for
    graphs, collectives and fragments. Negative when even the weights do not fit the share.
    """
    used_bytes = total_bytes - free_bytes
    return int(total_bytes * memory_share) - used_bytes - activation_bytes - reserve_bytes


def count_pages(kv_bytes: int, bytes_per_page: int, n_slots: int, max_length: int) -> int:
    """Pages that fit into `kv_bytes`, at most as many as all slots can fill.

    Raises: ConfigError when not even one short sequence has room.
    """
    useful = n_slots * -(-max_length // PAGE_TOKENS)
    pages = min(kv_bytes // bytes_per_page, useful)
    if pages < min(MIN_PAGES, useful):
        raise ConfigError(
            f"worker.kv_memory_bytes: expected room for {MIN_PAGES} pages of {bytes_per_page} bytes, got {kv_bytes} bytes"
        )
    return pages
