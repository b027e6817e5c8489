"""What a scheduler tells gateways about the condition of its replica."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from messages.generation.sequences import Suspicion
from messages.limits import MAX_SEQUENCES
from messages.wire.message import Count, Message, Part


class ReplicaCondition(StrEnum):
    """Whether the gang of a replica can compute."""

    UP = "up"
    DOWN = "down"  # no gang, or one that is not ready
    SICK = "sick"  # its gang dies of a built-in step, so the device is at fault and no request


class Suspect(Part, frozen=True):
    """An attempt under suspicion."""

    attempt: Count
    suspicion: Suspicion


class ReplicaState(Message, frozen=True):
    """The condition of a scheduler's replica, sent to a gateway that appears and to all gateways when it changes.

    `since_s`: for how many seconds the condition has lasted. `suspects`: all attempts of this gateway that are under suspicion.
    `has_successor`: whether a standby gang may take over at once. If it is False, the replica is down for as long as a gang
    takes to start, and sequences need not wait for it.
    """

    condition: ReplicaCondition
    since_s: float
    suspects: Annotated[list[Suspect], msgspec.Meta(max_length=MAX_SEQUENCES)] = []
    has_successor: bool = True
