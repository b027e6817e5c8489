"""Whether the memory of a host has room for standby gangs on its CPU cores. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.runner.memory_estimate import GIB, default_cpu_kv_bytes
from gpu_workers.settings import WorkerSettings

_PAIR = 2  # gangs of a replica with a standby
_MEMORY_SHARE = 2  # all gangs together may take one part in two: a host has other work to do
# of a rank, beside weights, keys and values: libraries, activations, its spare process. Measured with SmolLM2: 0.4 to 0.9 GiB
RANK_BYTES = GIB


@dataclass(frozen=True)
class CpuRoom:
    """The memory of a host. `worker`: the operator's settings."""

    memory_bytes: int
    worker: WorkerSettings

    def has_standby(self, asked: bool | None, weight_bytes: int, n_ranks: int) -> bool:
        """Whether each replica gets a standby gang: as the operator `asked`; if nothing was asked (None), where all gangs
        together take at most half of the memory.

        `weight_bytes`: of all replicas; `n_ranks`: of all replicas, without standbys.
        """
        if asked is not None:
            return asked
        return _MEMORY_SHARE * self.needed_bytes(weight_bytes, n_ranks, _PAIR) <= self.memory_bytes

    def needed_bytes(self, weight_bytes: int, n_ranks: int, n_gangs: int) -> int:
        """Memory of all ranks. `weight_bytes`, `n_ranks`: as for `has_standby`; `n_gangs`: of each replica."""
        kv_bytes = self.worker.kv_memory_bytes or default_cpu_kv_bytes(self.memory_bytes)
        all_weights_bytes = weight_bytes if self.worker.shared_weights else n_gangs * weight_bytes
        place_bytes = self.worker.host_cache_bytes + self.worker.exchange_bytes  # a standby writes no place of its own
        return all_weights_bytes + n_ranks * (kv_bytes + place_bytes + n_gangs * RANK_BYTES)
