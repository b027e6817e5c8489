"""The child's side of the lifecycle messages: Hello, Welcome, Ready, Progress, peers, Drain and Stop. For actors and workers.

A `Child` owns the address book and sends the child's own lifecycle messages. It takes lifecycle messages out of each
batch and calls the `LifecycleEvents` of its owner; all other messages are passed on.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from messages.errors import ConfigError, TardigradeError
from messages.ids import SUPERVISOR, role_of
from messages.lifecycle import lifecycle
from messages.lifecycle.cordon import Cordon, Cordons
from messages.lifecycle.lifecycle import Reached
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.lifecycle.supervisor_watch import SupervisorWatch
from messages.outcomes import ExitCode
from messages.transport.mailbox import Delivery, Mailbox
from messages.wire.message import MAX_SHORT_CHARACTERS, Message

_METRICS_EVERY_BEATS = 4
_FIRST_BEAT_S = 0.1  # after Ready. Metrics take milliseconds to collect, and what a dead process has left goes on first
_FINAL_ERRORS = (ConfigError, ValueError, MemoryError, FileNotFoundError, PermissionError, NotADirectoryError)
_REASON_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 60_000
_TRACEBACK_CALLS = -8  # the innermost ones


class SenderState(Enum):
    """What a child knows of the process that has sent it a message."""

    ALIVE = "alive"  # handle the message
    DEAD = "dead"  # drop it: that incarnation is proven dead
    UNANNOUNCED = "unannounced"  # keep it until the supervisor announces that incarnation


class LifecycleEvents(Protocol):
    """What the owner of a `Child` does at each lifecycle event."""

    def peer_up(self, peer: lifecycle.Peer) -> None:
        """A peer is ready; there is a link to it now."""
        ...

    def peer_down(self, name: str, incarnation: int) -> None:
        """A peer is proven dead; its link is closed. `Child.deaths` says how that incarnation ended."""
        ...

    def drain(self, deadline_s: float) -> None:
        """Accept no new work. Call `Child.drained()` when all work is finished, within `deadline_s` seconds."""
        ...

    def beat(self, with_metrics: bool) -> lifecycle.Progress:
        """The next Progress message. `with_metrics`: include the metric families, which take time to collect."""
        ...

    def abandoned(self) -> None:
        """The supervisor died and no other came in time. End as after a Stop; `Child.is_stopping` is True already."""
        ...


def error_line(error: BaseException) -> str:
    """The first line of an error's text. The class name stands before it, unless the error is a `TardigradeError`."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    line = first if first and isinstance(error, TardigradeError) else f"{name}: {first}" if first else name
    return line[:_REASON_CHARACTERS]


class Child:
    """This process as a child of the supervisor: its address book (`peers`, `deaths`) and its lifecycle messages.

    `owner` is called at each lifecycle event; see `LifecycleEvents`.
    """

    def __init__(self, spawn_spec: SpawnSpec, mailbox: Mailbox, owner: LifecycleEvents) -> None:
        self.spawn_spec, self.mailbox = spawn_spec, mailbox
        self._owner = owner
        self.peers: dict[str, lifecycle.Peer] = {}
        self._names_by_role: dict[str, list[str]] = {}  # of `peers`, for roles that were asked for; forgotten at each change
        self.deaths: dict[str, lifecycle.PeerDown] = {}  # name -> the newest incarnation that is proven dead, and how it ended
        self._beat_timer: asyncio.TimerHandle | None = None
        self._n_beats = 0
        self._reached = Reached.WELCOMED
        self._details: dict[str, str] = {}
        self._supervisor_incarnation = spawn_spec.supervisor_incarnation
        self._watch = SupervisorWatch(spawn_spec.orphan_s, self._abandoned)
        self.is_stopping = self.is_handing_over = False
        self.on_cordons: Callable[[Sequence[Cordon]], None] = lambda cordons: None  # an actor that chooses replicas sets it

    def hello(self) -> None:
        """Tell the supervisor that this process exists and where it listens. From now on its death is noticed."""
        self._watch.watch(self.spawn_spec.supervisor_pid)
        self._say_hello()

    def _say_hello(self) -> None:
        self.mailbox.connect(SUPERVISOR, self._supervisor_incarnation, self.spawn_spec.supervisor_endpoint)
        endpoint, state, details = self.mailbox.endpoint, self._reached, self._details
        self.report(lifecycle.Hello(pid=os.getpid(), endpoint=endpoint, state=state, details=details))

    def report(self, message: Message) -> None:
        """Send a message to the supervisor."""
        self.mailbox.send(SUPERVISOR, message)

    def loading(self, phase: str, fraction: float) -> None:
        """Report the progress of the start: `fraction` (0 to 1) of this phase is done."""
        self.report(lifecycle.Loading(phase=phase, fraction=fraction))

    def ready(self, details: dict[str, str]) -> None:
        """Report that this child can serve, and send Progress regularly from now on."""
        self._reached, self._details = Reached.READY, details
        self.report(lifecycle.Ready(details=details))
        first_s = min(_FIRST_BEAT_S, self.spawn_spec.beat_s)
        self._beat_timer = asyncio.get_running_loop().call_later(first_s, self._beat)

    def drained(self) -> None:
        """Report that all work is finished."""
        self._reached = Reached.DRAINED
        self.report(lifecycle.Drained())

    def stopped(self) -> None:
        """Report an orderly end. No message may follow."""
        self._watch.close()
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self.report(lifecycle.Stopped())

    @property
    def is_ready(self) -> bool:
        """True once this child has sent Ready."""
        return self._reached is not Reached.WELCOMED

    def fault(self, doing: str, error: BaseException) -> int:
        """Report the error that ends this process. Returns the exit status: UNUSABLE if another start cannot help."""
        is_final = not self.is_ready and isinstance(error, _FINAL_ERRORS)
        text = "".join(traceback.format_exception(error, limit=_TRACEBACK_CALLS))
        self.report(
            lifecycle.Fault(
                doing=doing[:MAX_SHORT_CHARACTERS],
                reason=error_line(error),
                traceback=text[:_TRACEBACK_CHARACTERS],
                is_final=is_final,
            )
        )
        return ExitCode.UNUSABLE if is_final else ExitCode.FAULT

    def names_of(self, role: str) -> list[str]:
        """The names of the living peers of a role, sorted. The list belongs to this object."""
        names = self._names_by_role.get(role)
        if names is None:
            names = self._names_by_role[role] = sorted(name for name in self.peers if role_of(name) == role)
        return names

    def sender_state(self, delivery: Delivery) -> SenderState:
        """What is known of the sender of a message. The supervisor and operators are not peers; they count as alive."""
        if role_of(delivery.sender) in _NOT_PEERS:
            return SenderState.ALIVE
        peer = self.peers.get(delivery.sender)
        if peer is not None and peer.incarnation == delivery.sender_incarnation:
            return SenderState.ALIVE
        death = self.deaths.get(delivery.sender)
        newest = max(peer.incarnation if peer is not None else 0, death.incarnation if death is not None else 0)
        return SenderState.DEAD if delivery.sender_incarnation <= newest else SenderState.UNANNOUNCED

    def filter_lifecycle(self, batch: list[Delivery]) -> list[Delivery]:
        """Handle the lifecycle messages of a batch; a Stop sets `is_stopping`. Returns all other messages, in order."""
        rest = []
        for delivery in batch:
            handler = _HANDLERS.get(type(delivery.message))
            if handler is None:
                rest.append(delivery)
            else:
                handler(self, delivery.message)
        return rest

    def _on_adopt(self, message: lifecycle.Adopt) -> None:
        if message.incarnation >= self._supervisor_incarnation:  # equal if the disk has refused to count it
            self._supervisor_incarnation = message.incarnation
            self._watch.watch(message.pid)
            self._say_hello()

    def _abandoned(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._owner.abandoned()

    def _on_welcome(self, message: lifecycle.Welcome) -> None:
        for death in message.deaths:  # first: peers that are dead must not count as members of a gang
            self._down(death)
        self.on_cordons(message.cordons)  # before the peers, of which some may be cordoned
        for peer in message.peers:
            self._up(peer)

    def _on_peer_up(self, message: lifecycle.PeerUp) -> None:
        self._up(message.peer)

    def _up(self, peer: lifecycle.Peer) -> None:
        known = self.peers.get(peer.name)
        if peer.name == self.spawn_spec.name or (known is not None and known.incarnation >= peer.incarnation):
            return
        if known is not None:
            self._down(lifecycle.PeerDown(name=known.name, incarnation=known.incarnation))
        self.peers[peer.name] = peer
        self._names_by_role.clear()
        self.mailbox.connect(peer.name, peer.incarnation, peer.endpoint)
        self._owner.peer_up(peer)

    def _on_peer_down(self, message: lifecycle.PeerDown) -> None:
        self._down(message)

    def _down(self, death: lifecycle.PeerDown) -> None:
        name, before = death.name, self.deaths.get(death.name)
        if before is None or before.incarnation <= death.incarnation:
            self.deaths[name] = death
        known = self.peers.get(name)
        if known is not None and known.incarnation <= death.incarnation:
            del self.peers[name]
            self._names_by_role.clear()
            self.mailbox.disconnect(name)
            self._owner.peer_down(name, death.incarnation)

    def _on_cordons(self, message: Cordons) -> None:
        self.on_cordons(message.cordons)

    def _on_drain(self, message: lifecycle.Drain) -> None:
        self._reached = Reached.DRAINING
        self._owner.drain(message.deadline_s)

    def _on_stop(self, message: lifecycle.Stop) -> None:
        self.is_stopping, self.is_handing_over = True, message.hand_over

    def _beat(self) -> None:
        if self.is_ready and not self.is_stopping:
            self.report(self._owner.beat(with_metrics=self._n_beats % _METRICS_EVERY_BEATS == 0))
            self._n_beats += 1
            self._beat_timer = asyncio.get_running_loop().call_later(self.spawn_spec.beat_s, self._beat)


_NOT_PEERS = (role_of(SUPERVISOR), "operator")
_HANDLERS: dict[type[Message], Callable[[Child, Message], None]] = {
    lifecycle.Adopt: Child._on_adopt,
    lifecycle.Welcome: Child._on_welcome,
    lifecycle.PeerUp: Child._on_peer_up,
    lifecycle.PeerDown: Child._on_peer_down,
    Cordons: Child._on_cordons,
    lifecycle.Drain: Child._on_drain,
    lifecycle.Stop: Child._on_stop,
}  # pyright: ignore[reportAssignmentType]
LIFECYCLE_KINDS = frozenset(_HANDLERS)
