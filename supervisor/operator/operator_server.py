"""Answers requests for the status, a drain or a stop from operators' commands, and for the status from gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
import zmq

from messages.lifecycle.cordon import CordonWanted
from messages.lifecycle.tree import (
    CommandTaken,
    DrainWanted,
    RestartWanted,
    ServeWanted,
    StatusReport,
    StatusWanted,
    StopWanted,
)
from messages.transport.mailbox import Delivery, Mailbox
from messages.wire.message import Message
from supervisor.children.child_manager import ChildManager
from supervisor.operator.tree_commands import TreeCommands

_LINK_S = 2.0  # an operator's command reads its answer within this time
_MAX_LINKS = 64

Report = Callable[[bool], StatusReport]
Restart = Callable[[bytes], str]
Cordon = Callable[[CordonWanted], str]


class OperatorServer:
    """Handles the messages that ask about the tree or give it a command. `report(with_metrics)` makes a status report.
    `restart(server)` begins a rolling restart, or returns why not; `cordon(wanted)` does so with a replica.

    An operator's command is answered only at an endpoint inside of this run directory.
    """

    def __init__(
        self,
        run_dir: Path,
        mailbox: Mailbox,
        children: ChildManager,
        commands: TreeCommands,
        report: Report,
        restart: Restart,
        cordon: Cordon,
    ) -> None:
        self._reply_prefix = f"ipc://{run_dir}/"
        self._mailbox, self._children, self._commands, self._report = mailbox, children, commands, report
        self._restart, self._cordon = restart, cordon
        self._links: dict[str, asyncio.TimerHandle] = {}

    def handle(self, delivery: Delivery) -> bool:
        """Answer a message. Returns False if it is not a request for status, drain or stop."""
        match delivery.message:
            case StatusWanted(reply_to=reply_to, metrics=with_metrics):
                self._answer(delivery, reply_to, self._report(with_metrics))
            case DrainWanted(reply_to=reply_to, deadline_s=deadline_s, then_stop=then_stop):
                self._commands.drain(deadline_s, then_stop)
                self._answer(delivery, reply_to, CommandTaken(state=self._report(False).state))
            case ServeWanted(reply_to=reply_to):
                refusal = self._commands.serve()
                self._answer(delivery, reply_to, CommandTaken(state=self._report(False).state, refusal=refusal))
            case StopWanted(reply_to=reply_to):
                self._commands.stop()
                self._answer(delivery, reply_to, CommandTaken(state=self._report(False).state))
            case RestartWanted(reply_to=reply_to, server=server):
                refusal = self._restart(server)
                self._answer(delivery, reply_to, CommandTaken(state=self._report(False).state, refusal=refusal))
            case CordonWanted(reply_to=reply_to):
                refusal = self._cordon(delivery.message)
                self._answer(delivery, reply_to, CommandTaken(state=self._report(False).state, refusal=refusal))
            case _:
                return False
        return True

    def _answer(self, delivery: Delivery, reply_to: str, message: Message) -> None:
        """Children have a link already; an operator's command gets one for `_LINK_S` seconds."""
        record = self._children.record_by_name.get(delivery.sender)
        if record is not None:
            if record.incarnation == delivery.sender_incarnation:
                self._children.send(record, message)
            return
        if not reply_to.startswith(self._reply_prefix) or len(self._links) >= _MAX_LINKS:
            structlog.get_logger().warning("call of an operator not answered", reply_to=reply_to, links=len(self._links))
            return
        try:
            self._mailbox.connect(delivery.sender, delivery.sender_incarnation, reply_to)
        except zmq.ZMQError as error:  # no descriptor is left
            structlog.get_logger().warning("call of an operator not answered", reply_to=reply_to, reason=str(error))
            return
        self._mailbox.send(delivery.sender, message)
        if (known := self._links.pop(delivery.sender, None)) is not None:
            known.cancel()
        self._links[delivery.sender] = asyncio.get_running_loop().call_later(_LINK_S, self._remove, delivery.sender)

    def _remove(self, name: str) -> None:
        self._links.pop(name, None)
        self._mailbox.disconnect(name)
