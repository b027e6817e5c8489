"""What of a rank lies in its replica's vault."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_workers.vault.kept_memory import KeptMemory
from gpu_workers.vault.weight_vault import WeightVault


@dataclass(frozen=True)
class RankVault:
    """The memory of one rank that outlives its process: keys and values, the places of the host tier and of the exchange, and
    the weights (None where they are not shared)."""

    kv: KeptMemory
    host: KeptMemory
    weights: WeightVault | None
    exchange: KeptMemory | None = None

    @property
    def shared_bytes(self) -> int:
        """Size of the weights that this process shares with others of its rank."""
        return 0 if self.weights is None else self.weights.shared_bytes

    def distrust(self) -> None:
        """The device has failed: what it has computed may be damaged, and copies of that may be in the host tier."""
        self.kv.distrust()
        self.host.distrust()
        if self.exchange is not None:
            self.exchange.distrust()

    def give_again(self) -> None:
        """Put all memory in use into the vault, which may be new. May take seconds when the vault does not answer."""
        self.kv.give_again()
        self.host.give_again()
        if self.exchange is not None:
            self.exchange.give_again()
        if self.weights is not None:
            self.weights.give_again()
