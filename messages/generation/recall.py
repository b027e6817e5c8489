"""How a gateway takes back sequences that wait at a replica, to submit them to another one."""

from __future__ import annotations

from messages.wire.arrays import Int64s
from messages.wire.message import Message


class Recall(Message, frozen=True):
    """The scheduler gives those of these attempts back that have never been in a slot, each with a retryable `Refused`. The
    others go on, and it says nothing of them."""

    attempts: Int64s
