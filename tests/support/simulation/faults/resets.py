"""An operator who lets the caches of a simulated server forget, at any time and with any conditions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from actors.gateway.requests.refusals import Refusal
from actors.pages.forgetting import Forgetting
from tests.support.simulation.processes import Machine, context_of

_MOST_TOKENS, _TOKEN_BYTES = 40, 4
_LONGEST_AGE_S = 2.0


class Resets:
    """Asks a gateway that serves. `done`: how many pages each reset that was answered has forgotten."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._chance = machine, machine.chance
        self.done: list[int] = []

    def begin(self) -> None:
        """Ask now."""
        serving = self._machine.ready("gateway")
        if gateways := [process for process in self._machine.processes if process.is_alive and process.actor in serving]:
            gateway = self._chance.choice(gateways)
            self._machine.loop.create_task(self._forget(gateway.actor), context=context_of(gateway.life))

    async def _forget(self, gateway: Any) -> None:
        with suppress(Refusal):  # a scheduler does not come back in time
            self.done.append((await gateway.caches.forget(self._wanted(gateway))).pages)

    def _wanted(self, gateway: Any) -> Forgetting:
        tokens, age_s = b"", self._chance.choice((0.0, 0.0, self._chance.uniform(0.0, _LONGEST_AGE_S)))
        running = [one for scheduler in gateway.living("scheduler") for one in gateway.manager.dispatcher.book.at(scheduler)]
        if running and self._chance.random() < 0.5:
            prompt = self._chance.choice(running).request.spec.prompts[0]
            tokens = prompt[: self._chance.randrange(_MOST_TOKENS) * _TOKEN_BYTES]
        return Forgetting(self._chance.choice((None, b"")), tokens, age_s)
