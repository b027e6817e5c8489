"""What a worker does with the vault: takes memory of the last process when an epoch begins, and gives it to the next vault."""

from __future__ import annotations

import threading
from importlib.metadata import version
from pathlib import Path

import msgspec

from gpu_workers.process.gang_agreement import EpochId
from gpu_workers.process.memory_generation import MemoryGeneration
from gpu_workers.process.rank_exchange import RankExchange
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.exchange_end import ExchangeEnd
from gpu_workers.vault.kept_memory import KeptMemory
from gpu_workers.vault.page_places import PagePlaces
from gpu_workers.vault.rank_vault import RankVault
from gpu_workers.vault.region import Region
from gpu_workers.vault.weight_vault import WeightVault
from messages.ids import actor_name, memory_owner, replica_of, weights_owner
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.run_dir import vault_path

_NO_CONTENT = {  # settings that change no byte of a page
    "device_index": 0,
    "threads": 0,
    "cpu_ranks": 1,
    "memory_share": 1.0,
    "kv_least_bytes": 0,
    "host_cache_bytes": 0,
    "host_cache_least_bytes": 0,
    "disk_cache_bytes": 0,
    "exchange_bytes": 0,
    "disk_cache_dir": "",
    "disk_cache_kept": True,
    "shared_weights": True,
}
_WEIGHTS_LAYOUT = 1  # to be raised when the same files give other finished weights


class RankMemory:
    """The memory of one rank that outlives it. `vault`: the name of the replica's vault. `exchange`: its part in the exchange
    of pages; None: it has none."""

    def __init__(self, vault: str, kept: RankVault, generation: MemoryGeneration, exchange: RankExchange | None = None) -> None:
        self.vault, self.exchange = vault, exchange
        self.kept, self._generation = kept, generation
        self.is_of_gang_before = False  # the vault has kept its host tier, so the process before has done no harm

    def prepare(
        self,
        epoch: EpochId,
        region: Region,
        places: PagePlaces | None,
        is_suspect: bool,
        exchange: ExchangeEnd | None = None,
    ) -> int:
        """An epoch begins: take the memory, once in the life of this process. Returns the gang's memory generation if this is
        its reporter, else 0.

        region: of keys and values; places: of the host tier; is_suspect: the memory of the gang before this one may be damaged;
        exchange: the places that other replicas can read, whose memory is always new.
        A gang that has memory already made it itself."""
        kv, host = self.kept.kv, self.kept.host
        if kv.number == 0:
            if places is None:
                host.drop_kept()
            else:
                self.is_of_gang_before = host.map_region(places.region, is_suspect)
                places.open()
            if exchange is not None and self.kept.exchange is not None:
                self.kept.exchange.map_region(exchange.region, is_suspect=True)
                exchange.open()
            kv.map_region(region, is_suspect)
        return self._generation.agree(epoch, kv.number)

    def distrust(self) -> None:
        """Note that the memory may be damaged, because the device has failed. Called on the step thread."""
        self.kept.distrust()

    def give_again(self) -> None:
        """A new vault has come: let it keep the memory. Returns at once."""
        threading.Thread(target=self.kept.give_again, name="vault", daemon=True).start()


def memory_of(spawn_spec: SpawnSpec, settings: WorkerSettings, gang_dir: Path) -> RankMemory:
    """The memory of the rank with this spawn spec."""
    replica = replica_of(spawn_spec.name)
    path = vault_path(Path(spawn_spec.run_dir), replica)
    owner, layout = memory_owner(spawn_spec.name), layout_of(settings)
    kv, host = KeptMemory(path, owner, layout), KeptMemory(path, owner, layout, "host")
    weights = None
    if settings.shared_weights and not settings.is_hash_chain:
        weights = WeightVault(path, weights_owner(spawn_spec.name), content_of_weights(settings))
    generation = MemoryGeneration(gang_dir, settings.rank, settings.n_ranks, settings.reporter)
    vault = actor_name("vault", replica)
    if not settings.exchange_bytes:
        return RankMemory(vault, RankVault(kv, host, weights), generation)
    places = KeptMemory(path, owner, layout, "exchange")
    exchange = RankExchange(Path(spawn_spec.run_dir), settings.rank, layout, places)
    return RankMemory(vault, RankVault(kv, host, weights, places), generation, exchange)


def layout_of(settings: WorkerSettings) -> bytes:
    """All that decides what the bytes of a page mean: the settings of the rank, and the names, sizes and times of the files of
    its model. Raises: OSError when the model's folder cannot be read."""
    return msgspec.json.encode([msgspec.structs.replace(settings, **_NO_CONTENT), _model_files(settings)])


def content_of_weights(settings: WorkerSettings) -> bytes:
    """All that decides what the bytes of finished weights mean: the model and its files, how they are loaded, the rank's part
    and device, and the version of torch, which packs them. Raises: OSError when the model's folder cannot be read."""
    model = (
        settings.model_folder,
        settings.load_format,
        settings.dtype_name,
        settings.quantization_name,
        settings.deterministic,
    )
    part = (settings.device, settings.device_index, settings.rank, settings.tp)
    part += (settings.pp,) if settings.pp > 1 else ()
    return msgspec.json.encode([_WEIGHTS_LAYOUT, version("torch"), model, part, _model_files(settings)])


def _model_files(settings: WorkerSettings) -> list[tuple[str, int, int]]:
    """Names, sizes and times of the model's files."""
    if settings.is_hash_chain:
        return []
    folder = Path(settings.model_folder)
    paths = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    return [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
