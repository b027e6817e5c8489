"""What of a rank lies in its replica's vault."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.vault.kv_memory import KvMemory
from gpu_workers.vault.weight_vault import WeightVault


@dataclass(frozen=True)
class RankVault:
    """The memory of one rank that outlives its process: keys and values, and the weights (None where they are not shared)."""

    kv: KvMemory
    weights: WeightVault | None

    @property
    def shared_bytes(self) -> int:
        """Size of the weights that this process shares with others of its rank."""
        return 0 if self.weights is None else self.weights.shared_bytes

    def give_again(self) -> None:
        """Put all memory in use into the vault, which may be new. May take seconds when the vault does not answer."""
        self.kv.give_again()
        if self.weights is not None:
            self.weights.give_again()
