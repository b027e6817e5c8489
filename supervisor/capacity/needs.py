"""What a server needs beside its devices: memory of the host, disk, and the size of its journals. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from actors.gateway.journal.retained import MOST_KEYED_BYTES, MOST_KEYLESS, MOST_KEYLESS_BYTES
from supervisor.capacity.workload import OfferedLoad
from supervisor.config.server_config import ServerConfig
from supervisor.placement.cpu_room import RANK_BYTES, CpuRoom
from supervisor.placement.host import n_children
from supervisor.placement.placement import Placement

_ACTOR_BYTES = 130 << 20  # of a process without a model, with its spare one
_TOKEN_BYTES = 6  # of a prompt or an answer in the journal
_REQUEST_BYTES = 1200  # of the rest of a request there: its terms, its end
_DEAD_SHARE = 2  # files of the journal are at most twice what lives in them, and
_FILE_BYTES = 4 << 20


@dataclass(frozen=True)
class HostNeeds:
    """Bytes. `journal_bytes` is part of `disk_bytes`, which also has logs and page files, but not the model's own files."""

    memory_bytes: int
    disk_bytes: int
    journal_bytes: int  # of all gateways
    model_bytes: int  # of weights in the dtype of the server, as they are read from disk


def needs_of(config: ServerConfig, placement: Placement, load: OfferedLoad, n_at_once: float) -> HostNeeds:
    """`n_at_once`: sequences that are being answered by the whole server."""
    n_ranks, n_gangs = placement.ranks, 1 + placement.has_standby
    n_others = n_children(config, placement) - n_ranks * n_gangs
    worker = config.worker
    if placement.device == "cpu":
        ranks_bytes = CpuRoom(placement.memory_bytes, worker).needed_bytes(placement.weight_bytes, n_ranks, n_gangs)
    else:
        ranks_bytes = n_ranks * (worker.host_cache_bytes + worker.exchange_bytes + n_gangs * 2 * RANK_BYTES)
    journal_bytes = _journal_bytes(config, load, n_at_once)
    disk_bytes = journal_bytes + config.log_file_bytes + n_ranks * worker.disk_cache_bytes
    replica_bytes = placement.weight_bytes * placement.tp if placement.gpus else placement.weight_bytes // placement.replicas
    return HostNeeds(ranks_bytes + n_others * _ACTOR_BYTES, disk_bytes, journal_bytes, replica_bytes)


def _journal_bytes(config: ServerConfig, load: OfferedLoad, n_at_once: float) -> int:
    """The most that the journals take: unfinished requests, and finished ones that clients can still ask for."""
    request_bytes = _REQUEST_BYTES + load.whole_tokens * _TOKEN_BYTES
    kept_bytes = min(MOST_KEYLESS * request_bytes, MOST_KEYLESS_BYTES, MOST_KEYED_BYTES)
    living_bytes = n_at_once * request_bytes + config.gateways * kept_bytes
    return int(_DEAD_SHARE * living_bytes) + config.gateways * _FILE_BYTES
