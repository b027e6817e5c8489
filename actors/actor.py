"""The loop that every actor runs, and nothing else: mail in, handlers, one turn, mail out.

        supervisor / peers                      Actor (this file)             the actor's own file
        ------------------                      -----------------             --------------------
        Welcome, PeerUp, PeerDown      ----->   address book         ----->   peer_up, peer_down
        any other message              ----->   handlers()[kind]     ----->   on_<message>(sender, message)
        (after each batch of mail)                                   ----->   after_mail()
        Drain                          ----->                        ----->   drain(); later self.child.drained()
        Stop                           ----->   stop()               ----->   stop(), then Stopped and exit 0
        Progress                       <-----   every beat_s         <-----   statistics(), registry

An exception in a handler ends the actor with a Fault: the supervisor decides what follows. Handlers never wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from messages import lifecycle
from messages.birth import Birth
from messages.child import LIFECYCLE_KINDS, Child
from messages.ids import role_of
from messages.routes import received_by
from messages.snapshot import take_snapshot
from messages.transport.mailbox import Delivery, Mailbox, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import NO_TRACE, Message

_SLOW_HANDLER_S = 0.25
_EARLY_MESSAGES = 4096

Handler = Callable[[Delivery, Any], None]


class Actor:
    """Base of all actors. A subclass gives `handlers` and overrides the turns of life that concern it."""

    def __init__(self, birth: Birth, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        self.birth = birth
        self.log = structlog.get_logger().bind(actor=birth.name, incarnation=birth.incarnation)
        self.mailbox: Mailbox = make_mailbox(birth.name, birth.incarnation, birth.endpoint)
        self.child = Child(birth, self.mailbox, self)
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._life: asyncio.Task[int] | None = None
        self._failure: tuple[str, BaseException] | None = None
        self._early: list[Delivery] = []  # mail of lives that the supervisor has not announced yet
        self._handlers = dict(self.handlers())
        missing = received_by(role_of(birth.name)) - self._handlers.keys() - LIFECYCLE_KINDS
        assert not missing, f"{birth.name} has no handler for {sorted(k.__name__ for k in missing)}"

    # -- what a subclass gives ------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Message class -> method(delivery, message)."""
        return {}

    async def start(self) -> dict[str, str]:
        """Become able to serve; returns the details of Ready. Mail waits meanwhile."""
        return {}

    async def stop(self) -> None:
        """Give back what `start` took."""

    def after_mail(self) -> None:
        """One turn, after every batch of mail has been handled."""

    def peer_up(self, peer: lifecycle.Peer) -> None:
        """A peer is ready; there is a link to it now."""

    def peer_down(self, name: str, incarnation: int) -> None:
        """A peer is proven dead; its link is closed."""

    def drain(self, deadline_s: float) -> None:
        """Finish what there is. An actor with nothing of its own to finish is drained at once."""
        self.child.drained()

    def statistics(self) -> dict[str, float]:
        """Numbers for `supervisor status`."""
        return {}

    def progress(self) -> tuple[int, float]:
        """(work done so far, seconds that the present piece of work has been running)."""
        return 0, 0.0

    # -- the loop -------------------------------------------------------------------------------------------------

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        """Say something to a living peer. Raises: UnknownPeer, MailboxFull."""
        self.mailbox.send(name, message, trace)

    def fail(self, doing: str, error: BaseException) -> None:
        """End with a Fault: a thread or a timer of this actor met an error that nobody owns. Call it on the loop."""
        if self._failure is None and self._life is not None:
            self._failure = (doing, error)
            self._life.cancel()

    def beat(self, with_metrics: bool) -> lifecycle.Progress:
        """The next Progress."""
        steps, busy_s = self.progress()
        statistics = self.statistics()
        metrics = take_snapshot(self.registry) if with_metrics else []
        return lifecycle.Progress(steps=steps, busy_s=busy_s, statistics=statistics, metrics=metrics)

    async def run(self) -> int:
        """Live until Stop (exit status 0) or until a handler fails; returns the exit status (see messages.child)."""
        doing = "start"
        self._life = asyncio.current_task()
        try:
            self.child.hello()
            details = await self.start()
            self.child.ready(details)
            self.log.info("ready", **details)
            while not self.child.is_stopping:
                doing = "mail"
                batch = self.child.filter_lifecycle(await self.mailbox.wait_mail())
                for delivery in self._in_order(batch):
                    doing = type(delivery.message).__name__
                    self._handle(delivery)
                doing = "turn"
                self.after_mail()
            doing = "stop"
            await self.stop()
            self.child.stopped()
        except (Exception, asyncio.CancelledError) as caught:
            if self._failure is not None:
                doing, error = self._failure
            elif isinstance(caught, asyncio.CancelledError):
                raise
            else:
                error = caught
            say = self.log.error if self.child.is_ready else self.log.debug  # the supervisor says why a start failed
            say("fault", doing=doing, exc_info=error)
            return self.child.fault(doing, error)
        finally:
            await self.mailbox.close()
        return 0

    def _in_order(self, batch: list[Delivery]) -> list[Delivery]:
        """Mail of living peers. A dead life's is dropped; that of a life not announced yet waits for its PeerUp."""
        known, early = [], []
        for delivery in [*self._early, *batch]:
            match self.child.is_known(delivery):
                case True:
                    known.append(delivery)
                case None:
                    early.append(delivery)
        self._early = early[:_EARLY_MESSAGES]
        return known

    def _handle(self, delivery: Delivery) -> None:
        began = time.monotonic()
        self._handlers[type(delivery.message)](delivery, delivery.message)
        took_s = time.monotonic() - began
        if took_s > _SLOW_HANDLER_S:
            self.log.warning("slow handler", kind=type(delivery.message).__name__, took_s=round(took_s, 3))
