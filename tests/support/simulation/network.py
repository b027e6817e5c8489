"""The simulated network: delays, ordered on each link as in libzmq; messages may be lost while a link is cut, or repeated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass

from messages.transport.mailbox import MemoryMailbox, MemoryNetwork
from messages.transport.mailbox_core import Delivery
from messages.wire.message import NO_TRACE, Message
from tests.support.simulation.edges import Edges, Fault

_SHORTEST_S, _USUAL_S, _LONGEST_S = 50e-6, 500e-6, 0.05
_WAITING_SHARE = 0.5  # of the cuts
_SLOW_SHARE = 0.002
_APART_S = 1e-7  # between two messages of one link: they keep their order


@dataclass
class Loss:
    """Which messages get lost or arrive twice. Shares are probabilities of one message."""

    lost_share: float = 0.0
    repeated_share: float = 0.0
    reordered_share: float = 0.0  # arrive later than messages that were sent after them


class SimulatedMailbox(MemoryMailbox):
    """A mailbox whose sends and receipts are edges."""

    def __init__(self, network: SimulatedNetwork, name: str, incarnation: int, endpoint: str) -> None:
        super().__init__(network, name, incarnation, endpoint)
        self._edges = network.edges
        self._later: list[Fault | None] = []  # what happens when the last batch is handled

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        with self._edges.around(f"sends {type(message).__name__}"):
            super().send(name, message, trace)

    def send_all(self, names: list[str], message: Message) -> None:
        with self._edges.around(f"sends {type(message).__name__}"):
            super().send_all(names, message)

    async def wait_mail(self) -> list[Delivery]:
        later, self._later = self._later, []
        for fault in later:
            self._edges.after(fault)
        batch = await super().wait_mail()
        self._later = [await self._edges.before(f"gets {type(delivery.message).__name__}") for delivery in batch]
        return batch


class SimulatedNetwork(MemoryNetwork):
    """Carries messages between mailboxes in virtual time."""

    def __init__(self, chance: random.Random, edges: Edges) -> None:
        super().__init__()
        self._chance = chance
        self.edges = edges
        self._context_by_endpoint: dict[str, Context] = {}
        self._last_s: dict[tuple[str, str], float] = {}
        self._cut_until_s: dict[tuple[str, str], float] = {}
        self.loss = Loss()
        self.n_carried = self.n_lost = 0

    def mailbox(self, name: str, incarnation: int, endpoint: str) -> MemoryMailbox:
        """A mailbox of the process that calls this."""
        self._context_by_endpoint[endpoint] = copy_context()
        return SimulatedMailbox(self, name, incarnation, endpoint)

    def cut(self, source: str, target: str, for_s: float) -> None:
        """Break the connection in this direction for some time. By chance all is lost, or it waits in the sender's socket
        and arrives all at once when libzmq has connected again."""
        until_s = asyncio.get_running_loop().time() + for_s
        if self._chance.random() < _WAITING_SHARE:
            self._last_s[source, target] = max(until_s, self._last_s.get((source, target), 0.0))
        else:
            self._cut_until_s[source, target] = until_s

    @property
    def endpoints(self) -> list[str]:
        """Every endpoint that was ever opened, in that order."""
        return list(self._context_by_endpoint)

    def carry(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        loop, chance, link = asyncio.get_running_loop(), self._chance, (source, target)
        self.n_carried += 1
        if self._cut_until_s.get(link, 0.0) > loop.time() or chance.random() < self.loss.lost_share:
            self.n_lost += 1
            return
        slow = chance.random() < _SLOW_SHARE
        delay_s = _SHORTEST_S + ((_LONGEST_S if slow else _USUAL_S) - _SHORTEST_S) * chance.random()
        for _ in range(2 if chance.random() < self.loss.repeated_share else 1):
            at_s = max(loop.time() + delay_s, self._last_s.get(link, 0.0) + _APART_S)
            if self.loss.reordered_share and chance.random() < self.loss.reordered_share:
                at_s += chance.uniform(0.0, _LONGEST_S)
            else:
                self._last_s[link] = at_s
            loop.call_at(at_s, arrive, context=self._context_by_endpoint[target])
