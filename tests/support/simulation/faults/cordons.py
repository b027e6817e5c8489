"""An operator who takes replicas of a simulated server out of use and back, at any time, and drains some of them."""

from __future__ import annotations

from messages.lifecycle.cordon import CordonWanted
from tests.support.simulation.processes import Machine
from tests.support.simulation.supervisors import SimulatedParent

_LONGEST_DRAIN_S = 2.0


class CordonCommands:
    """Gives the commands. `n_done`: those that were carried out."""

    def __init__(self, machine: Machine, parent: SimulatedParent) -> None:
        self._machine, self._parent, self._chance = machine, parent, machine.chance
        self.n_done = 0

    def begin(self) -> None:
        """Give one command now, if there is a supervisor."""
        chance = self._chance
        wanted = CordonWanted(
            reply_to="",
            replica=chance.randrange(2),
            is_cordoned=chance.random() < 0.7,
            is_draining=chance.random() < 0.7,
            deadline_s=chance.uniform(0.0, _LONGEST_DRAIN_S),
        )
        if self._parent.supervisor is not None:
            self._machine.loop.call_soon(self._carry_out, wanted, context=self._parent.context)

    def _carry_out(self, wanted: CordonWanted) -> None:
        """In the supervisor's process."""
        if (supervisor := self._parent.supervisor) is not None and not supervisor.cordons.carry_out(wanted):
            self.n_done += 1
