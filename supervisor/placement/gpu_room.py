"""How many tokens of keys and values fit into the memory of a GPU, and whether a standby fits too. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_workers.runner.memory_estimate import GIB, RankEstimate, slot_bytes
from gpu_workers.settings import WorkerSettings
from messages.errors import ConfigError

_PAIR = 2  # gangs of a replica with a standby
_MOST_SLOTS, _SLOTS_APART = 1024, 128
_MOST_BESIDE_URGENT = 384  # with 768, first tokens of urgent requests took up to 3 times as long as alone; 1.36 with 384
_SLOT_TOKENS = 1024  # of keys and values for each further slot; with less, sequences would take each other's pages


@dataclass(frozen=True)
class GpuRoom:
    """The smallest GPU of a replica. `worker`: the operator's settings."""

    memory_bytes: int
    worker: WorkerSettings

    def tokens(self, estimate: RankEstimate, n_gangs: int = 1) -> int:
        """Tokens of keys and values for which one replica of `n_gangs` gangs has room; negative when not even the gangs fit."""
        shares = self.worker.shared_weights
        if not self.worker.kv_memory_bytes:
            return estimate.room_tokens(int(self.memory_bytes * self.worker.memory_share), n_gangs, shares)
        asked = self.worker.kv_memory_bytes // estimate.kv_token_bytes
        return min(asked, estimate.room_tokens(self.memory_bytes, n_gangs, shares))

    def slots(
        self, estimate_with: Callable[[int], RankEstimate], n_gangs: int, length_tokens: int, *, has_urgent_steps: bool
    ) -> int:
        """Sequences at once for which a replica of `n_gangs` gangs has memory: more sequences share each read of the weights.

        estimate_with: what a rank needs with so many; length_tokens: of the longest sequence; has_urgent_steps: urgent prompts
        are computed beside the steps, and their first tokens wait for what a step of many rows gives the other processes to do.
        """
        least, slot_tokens = self.worker.slots, min(_SLOT_TOKENS, length_tokens)
        table_bytes = n_gangs * slot_bytes(length_tokens)

        def has_room_for(n_slots: int) -> bool:
            estimate = estimate_with(n_slots)
            room = self.tokens(estimate, n_gangs) - n_slots * table_bytes // estimate.kv_token_bytes
            return room >= n_slots * slot_tokens

        most = _MOST_BESIDE_URGENT if has_urgent_steps else _MOST_SLOTS
        return next(filter(has_room_for, range(most, least, -_SLOTS_APART)), least)

    def check_kv_memory(self, estimate: RankEstimate) -> None:
        """Check the memory for keys and values that the operator has asked for. `estimate`: what a rank needs besides it.

        Raises: ConfigError when it does not fit beside the weights.
        """
        most = self.memory_bytes - estimate.weight_bytes - estimate.working_bytes
        if self.worker.kv_memory_bytes > most:
            raise ConfigError(
                f"worker.kv_memory_bytes: expected at most {most} (beside {estimate.weight_bytes / GIB:.1f} GiB of weights on"
                f" {self.memory_bytes / GIB:.1f} GiB), got {self.worker.kv_memory_bytes}"
            )

    def has_standby(self, asked: bool | None, estimate: RankEstimate, wanted_tokens: int, least_tokens: int) -> bool:
        """Whether a replica gets a standby gang: as the operator `asked`; if nothing was asked (None), where at least half of
        the room for keys and values is left, and at least `wanted_tokens`.

        `least_tokens`: with less room no server starts.

        Raises: ConfigError when a standby is asked for and does not fit.
        """
        if asked is False:
            return False
        alone, beside = self.tokens(estimate), self.tokens(estimate, _PAIR)
        gangs_bytes = estimate.gangs_bytes(_PAIR, self.worker.shared_weights)
        fits = beside >= least_tokens and self.worker.kv_memory_bytes + gangs_bytes <= self.memory_bytes
        if asked and not fits:
            raise ConfigError(
                f"standby: expected room for two gangs of {gangs_bytes / _PAIR / GIB:.1f} GiB each and their keys and values on"
                f" each GPU of {self.memory_bytes / GIB:.1f} GiB, got one gang's (--no-standby, or more GPUs per replica)"
            )
        return fits and (bool(asked) or (2 * beside >= alone and beside >= wanted_tokens))
