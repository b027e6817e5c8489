"""What the supervisor does after a death, as data: the restart policy returns these, the supervisor carries them out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kill:
    """End this incarnation now. Its death is reported to the policy later."""

    name: str
    reason: str


@dataclass(frozen=True)
class Start:
    """Start new incarnations, in this order, after a pause."""

    names: tuple[str, ...]
    delay_s: float


@dataclass(frozen=True)
class Promote:
    """The standby gang `names` takes over from the gang `instead_of`, whose death is proven and which becomes the standby."""

    names: tuple[str, ...]
    instead_of: tuple[str, ...]


@dataclass(frozen=True)
class Retire:
    """The server goes on without a group for now: raise an alarm. A `Start` after `pause_s` seconds follows."""

    title: str
    reason: str
    pause_s: float


@dataclass(frozen=True)
class GiveUp:
    """Stop the whole tree and exit with this status."""

    exit_status: int
    reason: str
    name: str  # the child whose death led to it


Action = Kill | Start | Promote | Retire | GiveUp
