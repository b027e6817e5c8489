"""What a worker does with the vault: takes its KV memory when an epoch begins, and gives it to the next vault."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from gpu_workers.process.gang_agreement import EpochId
from gpu_workers.process.memory_generation import MemoryGeneration
from gpu_workers.settings import WorkerSettings
from gpu_workers.vault.kv_memory import KvMemory
from gpu_workers.vault.region import Region
from messages.birth import Birth
from messages.ids import actor_name, memory_owner, replica_of
from messages.run_dir import vault_path

_NO_CONTENT = {"device_index": 0, "threads": 0, "cpu_ranks": 1, "memory_share": 1.0}  # settings that change no byte of a page


class RankMemory:
    """The KV memory of one rank. `vault`: the name of the replica's vault."""

    def __init__(self, vault: str, memory: KvMemory, generation: MemoryGeneration) -> None:
        self.vault = vault
        self.kv, self._generation = memory, generation

    def prepare(self, epoch: EpochId, region: Region, is_suspect: bool) -> int:
        """An epoch begins: take the memory, once in the life of this process. Returns the gang's memory generation if this is
        rank 0, else 0.

        is_suspect: the memory of the gang before this one may be damaged. A gang that has memory already made it itself."""
        if self.kv.number == 0:
            self.kv.take(region, is_suspect)
        return self._generation.agree(epoch, self.kv.number)

    def distrust(self) -> None:
        """Called on the step thread when the device has failed: the memory may be damaged."""
        self.kv.distrust()

    def give_again(self) -> None:
        """A new vault has come: let it keep the memory. Returns at once."""
        threading.Thread(target=self.kv.give_again, name="vault", daemon=True).start()


def memory_of(birth: Birth, settings: WorkerSettings, gang_dir: Path) -> RankMemory:
    """The memory of the rank with this birth."""
    replica = replica_of(birth.name)
    memory = KvMemory(vault_path(Path(birth.run_dir), replica), memory_owner(birth.name), layout_of(settings))
    return RankMemory(actor_name("vault", replica), memory, MemoryGeneration(gang_dir, settings.rank, settings.tp))


def layout_of(settings: WorkerSettings) -> bytes:
    """All that decides what the bytes of a page mean: the settings of the rank, and the names, sizes and times of the files of
    its model. Raises: OSError when the model's folder cannot be read."""
    folder = Path(settings.model_folder)
    files = []
    if not settings.is_hash_chain:
        paths = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return msgspec.json.encode([msgspec.structs.replace(settings, **_NO_CONTENT), files])
