"""Answers to operators' tools and to gateways that ask for the state of the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
import zmq

from messages.lifecycle import DrainWanted, OrderTaken, StatusReport, StatusWanted, StopWanted
from messages.transport.mailbox import Delivery, Mailbox
from messages.wire.message import Message
from supervisor.children.nursery import Nursery
from supervisor.operator.orders import Orders

_LINK_S = 2.0  # an operator's tool reads its answer within this time
_MOST_LINKS = 64

Report = Callable[[bool], StatusReport]


class FrontDesk:
    """Takes the mail that does not come from a child about itself."""

    def __init__(self, run_dir: Path, mailbox: Mailbox, nursery: Nursery, orders: Orders, report: Report) -> None:
        self._reply_prefix = f"ipc://{run_dir}/"
        self._mailbox, self._nursery, self._orders, self._report = mailbox, nursery, orders, report
        self._links: dict[str, asyncio.TimerHandle] = {}

    def handle(self, delivery: Delivery) -> bool:
        """Answer; False when this message is none of ours."""
        match delivery.message:
            case StatusWanted(reply_to=reply_to, metrics=with_metrics):
                self._answer(delivery, reply_to, self._report(with_metrics))
            case DrainWanted(reply_to=reply_to, deadline_s=deadline_s, then_stop=then_stop):
                self._orders.drain(deadline_s, then_stop)
                self._answer(delivery, reply_to, OrderTaken(state=self._report(False).state))
            case StopWanted(reply_to=reply_to):
                self._orders.stop()
                self._answer(delivery, reply_to, OrderTaken(state=self._report(False).state))
            case _:
                return False
        return True

    def _answer(self, delivery: Delivery, reply_to: str, message: Message) -> None:
        """Children are in the address book; an operator's tool is connected to for a moment."""
        record = self._nursery.record_by_name.get(delivery.sender)
        if record is not None:
            if record.incarnation == delivery.sender_incarnation:
                self._nursery.tell(record, message)
            return
        if not reply_to.startswith(self._reply_prefix) or len(self._links) >= _MOST_LINKS:
            structlog.get_logger().warning("no answer to an operator", reply_to=reply_to, links=len(self._links))
            return
        try:
            self._mailbox.connect(delivery.sender, delivery.sender_incarnation, reply_to)
        except zmq.ZMQError as error:  # no descriptor is left
            structlog.get_logger().warning("no answer to an operator", reply_to=reply_to, reason=str(error))
            return
        self._mailbox.send(delivery.sender, message)
        if (known := self._links.pop(delivery.sender, None)) is not None:
            known.cancel()
        self._links[delivery.sender] = asyncio.get_running_loop().call_later(_LINK_S, self._forget, delivery.sender)

    def _forget(self, name: str) -> None:
        self._links.pop(name, None)
        self._mailbox.disconnect(name)
