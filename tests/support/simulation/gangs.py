"""Gangs of several ranks: what takes the place of a rank's waits for its siblings, and of the collectives inside a step.

A rank that would wait tries again a little later, so that its event loop goes on, as it does beside a real step thread. A step
of one rank ends only when all ranks of its stage, and of those before, have come to it: if one of them is dead or stands still,
the others wait for ever, as in NCCL.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gpu_workers.process.gang_agreement import EpochId
from gpu_workers.settings import WorkerSettings

_StepId = tuple[str, EpochId, int, int]  # gang, epoch, first step of the plan, number within the plan


class NotYet(Exception):
    """A rank would wait for another one now."""


class Collectives:
    """Which ranks have begun which steps, for all gangs of one simulation."""

    def __init__(self) -> None:
        self._begun: dict[_StepId, set[int]] = {}

    def is_met(self, step: _StepId, settings: WorkerSettings) -> bool:
        """The rank with these settings is within the step. Returns True if every rank that it waits for has come to it: all of
        its stage and of those before. A stage does not wait for later ones."""
        ranks = self._begun.setdefault(step, set())
        ranks.add(settings.rank)
        return ranks.issuperset(range((settings.stage + 1) * settings.tp))


def make_gangs_virtual(patch: Callable[[Any, str, Any], None]) -> None:
    """Let waits raise `NotYet`. `patch(object, name, value)` must undo itself after the simulation."""
    import gpu_workers.process.gang_agreement as gang_agreement
    import gpu_workers.process.memory_generation as memory_generation

    for module in (gang_agreement, memory_generation):
        patch(module, "time", SimpleNamespace(sleep=_not_yet))


def _not_yet(wait_s: float) -> None:
    raise NotYet
