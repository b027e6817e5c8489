"""A load that shrinks and grows by turns between deaths, so that what follows it does so too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from messages.lifecycle.tree import StatusReport
from tests.support.caches.role_killer import N_PROMPTS, RoleKiller
from tests.support.real_server import RealServer

FEW_PROMPTS = 2  # of quiet times


class ChangingLoad:
    """Lets the clients ask for few prompts and for all of them in turn. n_in_use: what follows the load, in a report of the
    server; nan while that is not known. It has shrunk when it is below `few`, and grown when it is above `many`."""

    def __init__(
        self, server: RealServer, roles: Sequence[str], n_in_use: Callable[[StatusReport], float], few: int, many: int
    ) -> None:
        self.server, self.roles = server, roles
        self.killer = RoleKiller(server, roles, self._change, self._end)
        self._n_in_use, self._few, self._many = n_in_use, few, many
        self.n_grown = self.n_shrunk = 0

    def _change(self) -> None:
        """Before half of the kills it has just shrunk, before the others grown."""
        if self.n_shrunk == self.n_grown:
            self._shrink()
        else:
            self._grow()

    def _end(self) -> None:
        """After the last death it follows the load as before."""
        self._shrink()
        self._grow()

    def _shrink(self) -> None:
        self.killer.n_prompts = FEW_PROMPTS
        self.server.wait_for(lambda report: self._n_in_use(report) < self._few)
        self.n_shrunk += 1

    def _grow(self) -> None:
        self.killer.n_prompts = N_PROMPTS
        self.server.wait_for(lambda report: self._n_in_use(report) > self._many)
        self.n_grown += 1
