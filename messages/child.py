"""The child's half of the life conversation: Hello, Welcome, Ready, beats, peers, Drain and Stop. Actors and workers share it.

It owns the child's mailbox and address book. Lifecycle mail is taken out of each batch and turned into calls of a
`ChildLife`; everything else is handed on.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable
from typing import Protocol

from messages import lifecycle
from messages.birth import Birth
from messages.errors import ConfigError, TardigradeError
from messages.ids import SUPERVISOR, role_of
from messages.transport.mailbox import Delivery, Mailbox
from messages.wire.message import Message

EXIT_FAULT = 1
EXIT_UNUSABLE = 2  # the configuration, or what it names, cannot be used: another start would fail in the same way
_METRICS_EVERY_BEATS = 4
_FINAL_ERRORS = (ConfigError, ValueError, MemoryError, FileNotFoundError, PermissionError, NotADirectoryError)
_REASON_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 60_000
_TRACEBACK_CALLS = -8  # the innermost ones


class ChildLife(Protocol):
    """What the owner of a child does at the turns of its life."""

    def peer_up(self, peer: lifecycle.Peer) -> None:
        """A peer is ready; there is a link to it now."""
        ...

    def peer_down(self, name: str, incarnation: int) -> None:
        """A peer is proven dead; its link is closed. `Child.deaths` knows how that life ended."""
        ...

    def drain(self, deadline_s: float) -> None:
        """Take nothing new; call `Child.drained()` when all is finished."""
        ...

    def beat(self, with_metrics: bool) -> lifecycle.Progress:
        """The present statistics, for the next beat; collecting metric families takes a while, so not each beat has them."""
        ...


def error_line(error: BaseException) -> str:
    """An error in one line: its class, unless it is one of ours that needs no class to be understood, and its first line."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    line = first if first and isinstance(error, TardigradeError) else f"{name}: {first}" if first else name
    return line[:_REASON_CHARACTERS]


class Child:
    """One life of one child."""

    def __init__(self, birth: Birth, mailbox: Mailbox, life: ChildLife) -> None:
        self.birth, self.mailbox = birth, mailbox
        self._life = life
        self.peers: dict[str, lifecycle.Peer] = {}
        self.deaths: dict[str, lifecycle.PeerDown] = {}  # name -> the newest life that is proven dead, and how it ended
        self._beat_timer: asyncio.TimerHandle | None = None
        self._n_beats = 0
        self._is_ready = False
        self.is_stopping = False

    def hello(self) -> None:
        """Say that this process exists."""
        self.mailbox.connect(SUPERVISOR, self.birth.supervisor_incarnation, self.birth.supervisor_endpoint)
        self.tell(lifecycle.Hello(pid=os.getpid(), endpoint=self.mailbox.endpoint))

    def tell(self, message: Message) -> None:
        """Say something to the supervisor."""
        self.mailbox.send(SUPERVISOR, message)

    def loading(self, phase: str, fraction: float) -> None:
        """Report how far the start has come (0 to 1 of this phase)."""
        self.tell(lifecycle.Loading(phase=phase, fraction=fraction))

    def ready(self, details: dict[str, str]) -> None:
        """Say that this child can serve, and begin to beat."""
        self._is_ready = True
        self.tell(lifecycle.Ready(details=details))
        self._beat()

    def drained(self) -> None:
        """Say that nothing is left to finish."""
        self.tell(lifecycle.Drained())

    def stopped(self) -> None:
        """Say the last word."""
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self.tell(lifecycle.Stopped())

    @property
    def is_ready(self) -> bool:
        """True once this child has said that it can serve."""
        return self._is_ready

    def fault(self, doing: str, error: BaseException) -> int:
        """Report the error that ends this process; returns the exit status that says whether another start may help."""
        is_final = not self._is_ready and isinstance(error, _FINAL_ERRORS)
        text = "".join(traceback.format_exception(error, limit=_TRACEBACK_CALLS))
        self.tell(
            lifecycle.Fault(
                doing=doing[:256], reason=error_line(error), traceback=text[:_TRACEBACK_CHARACTERS], is_final=is_final
            )
        )
        return EXIT_UNUSABLE if is_final else EXIT_FAULT

    def names_of(self, role: str) -> list[str]:
        """The living peers of a role, in order of their names."""
        return sorted(name for name in self.peers if role_of(name) == role)

    def is_known(self, delivery: Delivery) -> bool | None:
        """Is this mail from a living peer (or from the supervisor's side of the house)?

        False: from a life that is over. None: from one that this child has not been told of yet.
        """
        if role_of(delivery.sender) in _NOT_PEERS:
            return True
        peer = self.peers.get(delivery.sender)
        if peer is not None and peer.incarnation == delivery.sender_incarnation:
            return True
        death = self.deaths.get(delivery.sender)
        newest = max(peer.incarnation if peer is not None else 0, death.incarnation if death is not None else 0)
        return False if delivery.sender_incarnation <= newest else None

    def filter_lifecycle(self, batch: list[Delivery]) -> list[Delivery]:
        """Act on the lifecycle mail of a batch; returns the rest in order. Sets `is_stopping` on Stop."""
        rest = []
        for delivery in batch:
            handler = _HANDLERS.get(type(delivery.message))
            if handler is None:
                rest.append(delivery)
            else:
                handler(self, delivery.message)
        return rest

    def _on_welcome(self, message: lifecycle.Welcome) -> None:
        for peer in message.peers:
            self._up(peer)

    def _on_peer_up(self, message: lifecycle.PeerUp) -> None:
        self._up(message.peer)

    def _up(self, peer: lifecycle.Peer) -> None:
        known = self.peers.get(peer.name)
        if peer.name == self.birth.name or (known is not None and known.incarnation >= peer.incarnation):
            return
        if known is not None:
            self._down(lifecycle.PeerDown(name=known.name, incarnation=known.incarnation))
        self.peers[peer.name] = peer
        self.mailbox.connect(peer.name, peer.incarnation, peer.endpoint)
        self._life.peer_up(peer)

    def _on_peer_down(self, message: lifecycle.PeerDown) -> None:
        self._down(message)

    def _down(self, death: lifecycle.PeerDown) -> None:
        name, before = death.name, self.deaths.get(death.name)
        if before is None or before.incarnation <= death.incarnation:
            self.deaths[name] = death
        known = self.peers.get(name)
        if known is not None and known.incarnation <= death.incarnation:
            del self.peers[name]
            self.mailbox.disconnect(name)
            self._life.peer_down(name, death.incarnation)

    def _on_drain(self, message: lifecycle.Drain) -> None:
        self._life.drain(message.deadline_s)

    def _on_stop(self, message: lifecycle.Stop) -> None:
        self.is_stopping = True

    def _beat(self) -> None:
        if self._is_ready and not self.is_stopping:
            self.tell(self._life.beat(with_metrics=self._n_beats % _METRICS_EVERY_BEATS == 0))
            self._n_beats += 1
            self._beat_timer = asyncio.get_running_loop().call_later(self.birth.beat_s, self._beat)


_NOT_PEERS = (role_of(SUPERVISOR), "operator")
_HANDLERS: dict[type[Message], Callable[[Child, Message], None]] = {
    lifecycle.Welcome: Child._on_welcome,
    lifecycle.PeerUp: Child._on_peer_up,
    lifecycle.PeerDown: Child._on_peer_down,
    lifecycle.Drain: Child._on_drain,
    lifecycle.Stop: Child._on_stop,
}  # pyright: ignore[reportAssignmentType]
LIFECYCLE_KINDS = frozenset(_HANDLERS)
