"""Updates records, policies, log and terminal with each lifecycle message of a child."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from messages.lifecycle import lifecycle
from messages.lifecycle.lifecycle import Reached
from messages.lifecycle.tree import ChildState
from messages.transport.mailbox import Delivery
from messages.wire.message import Message
from supervisor.children.child_manager import ChildManager
from supervisor.children.child_record import ChildRecord
from supervisor.operator.display import Display
from supervisor.operator.shutdown import JOURNAL_REFUSES
from supervisor.operator.tree_commands import TreeCommands
from supervisor.policy.actions import Action
from supervisor.policy.liveness import Liveness
from supervisor.policy.restart_policy import RestartPolicy


class ChildReports:
    """Handles the messages of children. `on_ready` is called when a child has become ready, with what the policy wants."""

    def __init__(
        self,
        children: ChildManager,
        policy: RestartPolicy,
        liveness: Liveness,
        commands: TreeCommands,
        display: Display,
        on_ready: Callable[[list[Action]], None],
    ) -> None:
        self._children, self._policy, self._liveness = children, policy, liveness
        self._commands, self._display, self._on_ready_child = commands, display, on_ready
        self._log = structlog.get_logger()

    def handle(self, delivery: Delivery) -> None:
        """Handle one message. A message from a dead incarnation, or from a process that is no child, is dropped."""
        record = self._children.record_by_name.get(delivery.sender)
        if record is not None and record.incarnation == delivery.sender_incarnation and record.is_alive:
            _FROM_CHILDREN[type(delivery.message)](self, record, delivery.message)

    def _on_hello(self, record: ChildRecord, message: lifecycle.Hello) -> None:
        if record.state not in (ChildState.STARTING, ChildState.ADOPTED):
            return
        self._liveness.loading(record.name, time.monotonic())
        self._children.welcome(record, message)
        if message.state is not Reached.WELCOMED and record.state is ChildState.WELCOMED:
            self._log.info("child adopted", child=record.name, incarnation=record.incarnation)  # it serves all the time
            self._became_ready(record)
        if message.state in (Reached.DRAINING, Reached.DRAINED) and record.state is ChildState.READY:
            record.enter(ChildState.DRAINING)
        if message.state is Reached.DRAINED:
            self._on_drained(record, lifecycle.Drained())

    def _on_loading(self, record: ChildRecord, message: lifecycle.Loading) -> None:
        if record.state is not ChildState.WELCOMED:
            return
        record.note_loading(message.phase, message.fraction, time.monotonic())
        self._liveness.loading(record.name, record.heard_s)
        self._display.loading(record.name, message.phase, message.fraction)

    def _on_ready(self, record: ChildRecord, message: lifecycle.Ready) -> None:
        if record.state is not ChildState.WELCOMED:
            return
        now_s = time.monotonic()
        phases_s = record.phases_s(now_s)
        facts = {"child": record.name, "incarnation": record.incarnation, "took_s": round(now_s - record.started_s, 3)}
        facts |= {"phases_s": phases_s} if phases_s else {}
        if self._commands.has_served and record.died_s:  # at the level of its death, so that a terminal shows both
            log = self._log.info if record.replaced_incarnation == record.incarnation - 1 else self._log.warning
            log("child ready again", **facts, down_s=round(now_s - record.died_s, 3))
        else:
            self._log.info("child ready", **facts)
        self._became_ready(record)

    def _became_ready(self, record: ChildRecord) -> None:
        record.heard_s = now_s = time.monotonic()
        self._liveness.became_ready(record.name, now_s)
        is_standby = self._policy.is_standby(record.name)
        actions = self._policy.became_ready(record.name, record.incarnation, now_s)
        self._children.became_ready(record, is_standby)
        self._display.ready(record.name, round(now_s - record.started_s, 3))
        self._commands.note_ready(record)
        self._on_ready_child(actions)

    def _on_progress(self, record: ChildRecord, message: lifecycle.Progress) -> None:
        if record.last is not None and JOURNAL_REFUSES in record.last.statistics and JOURNAL_REFUSES not in message.statistics:
            self._children.note_change()
        record.last, record.heard_s = message, time.monotonic()
        record.metrics = message.metrics or record.metrics
        self._liveness.beat(record.name, message.steps, message.busy_s, record.heard_s, message.limit_s)

    def _on_drained(self, record: ChildRecord, message: lifecycle.Drained) -> None:
        if record.state is ChildState.DRAINING:
            record.enter(ChildState.DRAINED)
            self._children.note_change()

    def _on_stopped(self, record: ChildRecord, message: lifecycle.Stopped) -> None:
        self._liveness.gone(record.name)

    def _on_fault(self, record: ChildRecord, message: lifecycle.Fault) -> None:
        self._children.ending_notices.tell(record, "faulted")
        is_repeated = record.note_fault(message)
        # while the server starts, an earlier line or `Supervisor._give_up` shows it already
        is_shown = not self._commands.has_served and (is_repeated or message.is_final)
        log = self._log.info if is_shown else self._log.error
        log("child fault", child=record.name, incarnation=record.incarnation, doing=message.doing, reason=message.reason)


_FROM_CHILDREN: dict[type[Message], Callable[[ChildReports, ChildRecord, Any], None]] = {
    lifecycle.Hello: ChildReports._on_hello,
    lifecycle.Loading: ChildReports._on_loading,
    lifecycle.Ready: ChildReports._on_ready,
    lifecycle.Progress: ChildReports._on_progress,
    lifecycle.Drained: ChildReports._on_drained,
    lifecycle.Stopped: ChildReports._on_stopped,
    lifecycle.Fault: ChildReports._on_fault,
}
