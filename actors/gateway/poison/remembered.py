"""What a gateway remembers of prompts and callers that have harmed workers, as its journal has it. Times are relative."""

from __future__ import annotations

import msgspec


class RememberedPrompt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One quarantined prompt, see `quarantine.py`."""

    key: bytes  # digest of prompt, caller and sampling
    left_s: float  # until it is forgotten
    n_given: int
    replicas: tuple[str, ...]


class RememberedCaller(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The harm of one caller, see `harm_budget.py`."""

    caller: bytes
    quiet_s: float  # since the last harm
    harms: tuple[tuple[str, ...], ...]  # for each quarantined sequence the replicas at which workers died


class Remembered(msgspec.Struct, frozen=True, array_like=True):
    """Everything that one gateway remembers, as long as it counts; the oldest first."""

    prompts: list[RememberedPrompt] = []
    callers: list[RememberedCaller] = []

    def aged(self, age_s: float) -> Remembered:
        """What is left of this after `age_s` more seconds."""
        replace = msgspec.structs.replace
        prompts = [replace(one, left_s=one.left_s - age_s) for one in self.prompts]
        return Remembered(prompts, [replace(one, quiet_s=one.quiet_s + age_s) for one in self.callers])
