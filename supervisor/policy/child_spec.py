"""What a child and a group of children are, as data: who, how it restarts, how long each turn of its life may take.

Nothing here acts. `tree.py` fills these in, `restart_policy.py` and `liveness.py` decide by them, `nursery.py` carries out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Strategy(Enum):
    """Who must go down with a dead child of a group (the words are those of Erlang/OTP)."""

    ONE_FOR_ONE = "one_for_one"  # nobody: independent helpers
    ONE_FOR_ALL = "one_for_all"  # every sibling: they cannot work without each other
    REST_FOR_ONE = "rest_for_one"  # the siblings after it: a chain in which each leans on those before


@dataclass(frozen=True)
class Budget:
    """When to give up on a group: after more than `restarts` restarts within `window_s` seconds; after `start_attempts`
    starts in a row that did not become ready, or `restart_attempts` once it has been ready (what worked may work again)."""

    restarts: int
    window_s: float
    start_attempts: int
    restart_attempts: int

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise ValueError(f"restarts: expected 0 or more, got {self.restarts}")
        if self.window_s <= 0:
            raise ValueError(f"window_s: expected more than 0 seconds, got {self.window_s}")
        for name in ("start_attempts", "restart_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")


@dataclass(frozen=True)
class Deadlines:
    """The longest that each turn of a child's life may take, in seconds."""

    hello_s: float  # from the spawn to Hello: interpreter and imports
    ready_s: float  # from Hello to Ready: weights, compilation, journals; news of its loading starts it again
    frozen_s: float  # between two beats of a ready child
    step_s: float  # one piece of work
    first_step_s: float  # the first piece of work of a life, which may compile
    stop_s: float  # from Stop to the exit


@dataclass(frozen=True)
class ChildSpec:
    """One process of the tree."""

    name: str  # "gateway/0", "worker/0.1"
    settings: bytes  # its section of the configuration, as JSON
    deadlines: Deadlines
    env: Mapping[str, str] = field(default_factory=dict)  # added to the supervisor's own environment
    descriptors: Mapping[str, int] = field(default_factory=dict)  # file descriptors that it inherits, by name
    warm_ups: tuple[str, ...] = ()  # what a spare process of it does in advance; see entrypoint.py


@dataclass(frozen=True)
class Group:
    """Children that share a restart strategy and a budget, in start order."""

    title: str
    why: str  # why it stands at its place, and what its death means
    strategy: Strategy
    budget: Budget
    children: tuple[ChildSpec, ...]
    has_rendezvous: bool = False  # its children meet in a fresh directory in each life

    def __post_init__(self) -> None:
        if not self.children:
            raise ValueError(f"{self.title}: expected at least one child, got none")
