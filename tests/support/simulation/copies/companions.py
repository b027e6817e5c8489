"""What clients do at the moment when a sequence begins to run ahead of its load: one comes with the same prompt and waits for
the same load, or the one that has asked leaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from actors.scheduler.sequences.sequence import Sequence
from tests.support.simulation.clients.client import Client, InProcessClient
from tests.support.simulation.clients.planned_requests import ClientKind, PlannedRequest
from tests.support.simulation.processes import context_of

_SHARE = 0.5  # of the runs; half of these get another one beside them, of the others the client leaves
_MOST = 12  # clients that come, so that a run has an end
_NEW_TOKENS = 4


class Companions:
    """Of one run. make_client: for a request; vocabulary: of the model. `clients` and `work`: all of them, also those that
    come later."""

    def __init__(self, seed: int, make_client: Callable[[PlannedRequest], Client], vocabulary: int) -> None:
        self._chance = random.Random(f"companions {seed}")
        self._make_client, self._vocabulary = make_client, vocabulary
        self._n_come = 0
        self.clients: list[Client] = []
        self.work: list[asyncio.Future[None]] = []

    def begin(self, clients: list[Client]) -> None:
        """These clients begin."""
        self.clients += clients
        self.work += [asyncio.ensure_future(client.run()) for client in clients]

    def run_began(self, sequence: Sequence) -> bool:
        """A sequence runs ahead of its load. Returns True if the load should be slow, because somebody acts meanwhile."""
        if self._chance.random() > _SHARE:
            return False
        asked = next((client for client in self.clients if client.planned.request == sequence.request), None)
        if asked is None or self._n_come >= _MOST:
            return False
        loop, outside = asyncio.get_running_loop(), context_of(None)
        if self._chance.random() < 0.5:
            self._n_come += 1
            loop.call_soon(self._come, asked.planned, context=outside)
        elif isinstance(asked, InProcessClient):
            loop.call_soon(asked.leave, context=outside)
        return True

    def _come(self, before: PlannedRequest) -> None:
        planned = PlannedRequest(
            request=f"beside-{self._n_come}",
            gateway=before.gateway,
            prompt=before.prompt,
            max_tokens=_NEW_TOKENS,
            seed=0,
            client_kind=ClientKind.IN_PROCESS,
            vocabulary=self._vocabulary,
        )
        self.begin([self._make_client(planned)])
