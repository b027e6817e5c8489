"""The loop that every actor runs: receive a batch of mail, call a handler for each message, then call `after_mail`.

        supervisor / peers                      Actor (this file)             the actor's own file
        ------------------                      -----------------             --------------------
        Welcome, PeerUp, PeerDown      ----->   address book         ----->   peer_up, peer_down
        any other message              ----->   handlers()[kind]     ----->   on_<message>(sender, message)
        (after each batch of mail)                                   ----->   after_mail()
        Drain                          ----->                        ----->   drain(); later self.child.drained()
        Stop                           ----->   stop()               ----->   stop(), then Stopped and exit 0
        Progress                       <-----   every beat_s         <-----   statistics(), registry

An exception in a handler ends the actor with a Fault, and the supervisor decides what follows. Handlers never wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics

from messages.child import LIFECYCLE_KINDS, Child, LifecycleEvents, SenderState
from messages.descriptors.reserve import process_reserve
from messages.ids import role_of
from messages.lifecycle import lifecycle
from messages.lifecycle.spawn_spec import SpawnSpec
from messages.metrics import take_snapshot
from messages.outcomes import ExitCode
from messages.routes import received_by
from messages.transport.link_metrics import LinkMetrics
from messages.transport.mailbox import Delivery, Mailbox, MailboxFactory
from messages.transport.zmq_mailbox import ZmqMailbox
from messages.wire.message import NO_TRACE, Message

_SLOW_HANDLER_S = 0.25
_TURN_S = 0.05  # of mail; then timers and other tasks have their turn
_BEATS_PER_TICK = 2

Handler = Callable[[Delivery, Any], None]


class Actor(LifecycleEvents):
    """Base of all actors. A subclass provides `handlers` and overrides the lifecycle methods that concern it."""

    def __init__(self, spawn_spec: SpawnSpec, make_mailbox: MailboxFactory = ZmqMailbox) -> None:
        self.spawn_spec = spawn_spec
        self.log = structlog.get_logger().bind(actor=spawn_spec.name, incarnation=spawn_spec.incarnation)
        self.mailbox: Mailbox = make_mailbox(spawn_spec.name, spawn_spec.incarnation, spawn_spec.endpoint)
        self.child = Child(spawn_spec, self.mailbox, self)
        disable_created_metrics()  # nobody is shown them, and they are half of a counter's samples
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(LinkMetrics(self.mailbox.statistics))
        self.files = process_reserve()
        self._out_of_files = Gauge(
            "tardigrade_out_of_files",
            "1 while this process has too few free file descriptors for new connections, else 0.",
            registry=self.registry,
        )
        self._task: asyncio.Task[int] | None = None  # the task that executes `run`
        self._failure: tuple[str, BaseException] | None = None
        self._n_beats = 0
        self._early: list[Delivery] = []  # mail of incarnations that the supervisor has not announced yet
        self._handlers = dict(self.handlers())
        missing = received_by(role_of(spawn_spec.name)) - self._handlers.keys() - LIFECYCLE_KINDS
        assert not missing, f"{spawn_spec.name} has no handler for {sorted(k.__name__ for k in missing)}"

    # -- what a subclass provides ------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[type[Message], Handler]:
        """The handler of each message class: method(delivery, message)."""
        return {}

    async def start(self) -> dict[str, str]:
        """Acquire what the actor needs to serve. Returns the details of Ready. Mail is queued meanwhile."""
        return {}

    async def stop(self) -> None:
        """Release what `start` has acquired."""

    async def hand_over(self) -> None:
        """Called instead of `stop` when the next incarnation follows at once: keep open what that one can go on with."""
        await self.stop()

    def after_mail(self) -> None:
        """Called each time a batch of mail has been handled."""

    def tick(self) -> None:
        """Called with every second Progress message, about once a second."""

    def peer_up(self, peer: lifecycle.Peer) -> None:
        """A peer is ready; there is a link to it now."""

    def peer_down(self, name: str, incarnation: int) -> None:
        """A peer is proven dead; its link is closed."""

    def drain(self, deadline_s: float) -> None:
        """Finish all work, then call `self.child.drained`. An actor without accepted work does that at once."""
        self.child.drained()

    def abandoned(self) -> None:
        """No supervisor came back in time: end as after a Stop, or at once when nothing is served yet."""
        self.log.error("no supervisor came back in time: ending")
        if self._task is not None:
            self._task.cancel()

    def statistics(self) -> dict[str, float]:
        """Numbers for `supervisor status`."""
        return {}

    def progress(self) -> tuple[int, float]:
        """(pieces of work done so far, seconds for which the present one has been running)."""
        return 0, 0.0

    # -- the loop -------------------------------------------------------------------------------------------------

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        """Send a message to a living peer, with the trace id of its request. Raises: UnknownPeer, MailboxFull."""
        self.mailbox.send(name, message, trace)

    def fail(self, doing: str, error: BaseException) -> None:
        """End with a Fault, because of an error in a thread or timer of this actor. Must be called on the event loop.

        `doing`: what failed, in a word or two.
        """
        if self._failure is None and self._task is not None:
            self._failure = (doing, error)
            self._task.cancel()

    def beat(self, with_metrics: bool) -> lifecycle.Progress:
        """The next Progress message."""
        self._n_beats += 1
        self._out_of_files.set(self.files.check())
        if self._n_beats % _BEATS_PER_TICK == 0:
            try:
                self.tick()
            except Exception as error:
                self.fail("tick", error)
        steps, busy_s = self.progress()
        statistics = self.statistics()
        metrics = take_snapshot(self.registry) if with_metrics else []
        return lifecycle.Progress(steps=steps, busy_s=busy_s, statistics=statistics, metrics=metrics)

    async def run(self) -> int:
        """Run until Stop or until a handler fails. Returns the exit status of the process (an `ExitCode`)."""
        doing = "start"
        self._task = asyncio.current_task()
        try:
            self.child.hello()
            details = await self.start()
            self.child.ready(details)
            self.log.info("ready", **details)
            while not self.child.is_stopping:
                doing = "mail"
                batch = self.child.filter_lifecycle(await self._wait_mail())
                began = time.monotonic()
                for delivery in self._in_order(batch):
                    doing = type(delivery.message).__name__
                    if self._handle(delivery) - began > _TURN_S:
                        doing = "after_mail"
                        self.after_mail()
                        await self._let_others_run()
                        began = time.monotonic()
                doing = "after_mail"
                self.after_mail()
            doing = "stop"
            await (self.hand_over() if self.child.is_handing_over else self.stop())
            self.child.stopped()
        except (Exception, asyncio.CancelledError) as caught:
            if self._failure is not None:
                doing, error = self._failure
            elif isinstance(caught, asyncio.CancelledError):
                if self.child.is_stopping and not self.child.is_ready:  # abandoned while it was starting
                    return ExitCode.FAULT
                raise
            else:
                error = caught
            log = self.log.error if self.child.is_ready else self.log.debug  # the supervisor says why a start failed
            log("fault", doing=doing, exc_info=error)
            return self.child.fault(doing, error)
        finally:
            await self.mailbox.close()
        return ExitCode.DONE

    async def _wait_mail(self) -> list[Delivery]:
        """The next batch; an empty one when the supervisor has abandoned this actor."""
        try:
            return await self.mailbox.wait_mail()
        except asyncio.CancelledError:
            if self._failure is not None or not self.child.is_stopping:
                raise
            return []

    async def _let_others_run(self) -> None:
        """Give the event loop a turn in the middle of a long batch: an actor that is behind with its mail would send no sign of
        life, and be taken for a frozen one."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._failure is not None or not self.child.is_stopping:
                raise

    def _in_order(self, batch: list[Delivery]) -> list[Delivery]:
        """The mail of living peers, in order. Mail of unannounced incarnations waits for their PeerUp, and its senders get no
        credit meanwhile, which bounds it; mail of dead ones is dropped."""
        known, early = [], []
        for delivery in [*self._early, *batch]:
            match self.child.sender_state(delivery):
                case SenderState.ALIVE:
                    known.append(delivery)
                case SenderState.UNANNOUNCED:
                    early.append(delivery)
                case SenderState.DEAD:
                    pass
        if early or self._early:
            self.mailbox.defer({delivery.sender for delivery in early})
        self._early = early
        return known

    def _handle(self, delivery: Delivery) -> float:
        """Returns the time at which it is done."""
        began = time.monotonic()
        self._handlers[type(delivery.message)](delivery, delivery.message)
        done = time.monotonic()
        took_s = done - began
        if took_s > _SLOW_HANDLER_S:
            about = {"request": request} if (request := getattr(delivery.message, "request", "")) else {}
            self.log.warning("slow handler", kind=type(delivery.message).__name__, took_s=round(took_s, 3), **about)
        return done
