"""The header of every message between actors, and the rule that says which messages are stale."""

from __future__ import annotations

from enum import Enum

import msgspec

from messages.wire.message import NO_TRACE, TraceId

ENVELOPE_VERSION = 2


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Sender, receiver, the incarnation of each (the receiver's as the sender knows it), and the message's number on the link.

    `sequence` counts from 1 on each (sender incarnation, recipient incarnation) link; a credit acknowledges it. `trace` is set
    on messages that concern one traced request only; it costs two bytes where it is not.
    """

    version: int
    sender: str
    sender_incarnation: int
    recipient: str
    recipient_incarnation: int
    sequence: int
    trace: TraceId = NO_TRACE


class Staleness(Enum):
    """Whether a message is current, and if not, why it is dropped."""

    CURRENT = "current"
    FOR_ANOTHER_LIFE = "for_another_life"  # addressed to an earlier (or other) incarnation of the receiver
    FROM_THE_DEAD = "from_the_dead"  # sent by an incarnation that is older than the one known
    MISDIRECTED = "misdirected"  # not for this actor at all


def staleness(envelope: Envelope, me: str, my_incarnation: int, known_incarnation: int | None) -> Staleness:
    """Decide whether a message is stale. `known_incarnation`: the newest one of the sender that the receiver knows, or None.

    | recipient | recipient_incarnation | sender_incarnation | verdict          |
    |-----------|-----------------------|--------------------|------------------|
    | not me    | any                   | any                | MISDIRECTED      |
    | me        | not mine, not 0       | any                | FOR_ANOTHER_LIFE |
    | me        | mine or 0             | < known            | FROM_THE_DEAD    |
    | me        | mine or 0             | >= known or new    | CURRENT          |

    Incarnation 0 addresses whoever holds the name: only operators' commands and a child's Hello use it.
    """
    if envelope.recipient != me:
        return Staleness.MISDIRECTED
    if envelope.recipient_incarnation not in (0, my_incarnation):
        return Staleness.FOR_ANOTHER_LIFE
    if known_incarnation is not None and envelope.sender_incarnation < known_incarnation:
        return Staleness.FROM_THE_DEAD
    return Staleness.CURRENT
