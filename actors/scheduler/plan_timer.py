"""Plans later than after the next mail: when a rest of a sequence is over, or a plan has been held back for long enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from actors.actor import Actor


class PlanTimer:
    """The timers of one scheduler. `plan` plans until enough is in flight; an error in it ends the actor."""

    def __init__(self, actor: Actor, plan: Callable[[], None]) -> None:
        self._actor, self._plan = actor, plan
        self._held: asyncio.TimerHandle | None = None

    def after_rest(self, rest_s: float) -> None:
        """Plan after so many seconds."""
        asyncio.get_running_loop().call_later(rest_s, self._fire)

    def hold(self, wait_s: float) -> None:
        """Plan after so many seconds, instead of at the time of an earlier call; 0: not at all."""
        if self._held is not None:
            self._held.cancel()
            self._held = None
        if wait_s > 0.0:
            self._held = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def _fire(self) -> None:
        try:
            self._plan()
        except Exception as error:
            self._actor.fail("plan", error)
