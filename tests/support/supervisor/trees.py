"""Small trees for the tests of this folder."""

from __future__ import annotations

from typing import Any

from supervisor.policy.child_spec import Budget, ChildSpec, Deadlines, Group, Strategy, Unit

DEADLINES = Deadlines(hello_s=30.0, ready_s=30.0, frozen_s=5.0, step_s=20.0, first_step_s=60.0, stop_s=5.0)
BUDGET = Budget(restarts=3, window_s=60.0, start_attempts=3, restart_attempts=5)


def group(
    *names: str,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    budget: Budget = BUDGET,
    settings: bytes = b"{}",
    deadlines: Deadlines = DEADLINES,
    has_rendezvous: bool = False,
    needs: tuple[str, ...] = (),
    standby_of: str = "",
    unit: Unit | None = None,
    is_optional: bool = False,
    patience_s: float = 0.0,
) -> Group:
    """A group of children with these names, which joined by "+" are its title."""
    children = tuple(ChildSpec(name, settings, deadlines) for name in names)
    title, why = "+".join(names), "a test"
    return Group(title, why, strategy, budget, children, has_rendezvous, needs, standby_of, unit, is_optional, patience_s)


def replica(number: int, **more: Any) -> tuple[Group, Group]:
    """The gang, with these options, and the scheduler of a replica."""
    unit = Unit("replica", number)
    return group(f"worker/{number}.0", unit=unit, **more), group(f"scheduler/{number}", unit=unit)
