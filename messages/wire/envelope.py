"""What surrounds every message between actors, and the rule for what is stale."""

from __future__ import annotations

from enum import Enum

import msgspec

from messages.wire.message import NO_TRACE, TraceId

ENVELOPE_VERSION = 2


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Who says it, in which life, to whom, in which life of the receiver as the sender believes, and its number on the link.

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
    """What to do with a delivery."""

    CURRENT = "current"
    FOR_ANOTHER_LIFE = "for_another_life"  # addressed to an earlier (or other) incarnation of the receiver
    FROM_THE_DEAD = "from_the_dead"  # sent by an incarnation that is older than the one known
    MISDIRECTED = "misdirected"  # not for this actor at all


def staleness(envelope: Envelope, me: str, my_incarnation: int, known_incarnation: int | None) -> Staleness:
    """Judge a delivery. `known_incarnation` is the newest life of the sender that the receiver has heard of, or None.

    | recipient | recipient_incarnation | sender_incarnation | verdict          |
    |-----------|-----------------------|--------------------|------------------|
    | not me    | any                   | any                | MISDIRECTED      |
    | me        | not mine, not 0       | any                | FOR_ANOTHER_LIFE |
    | me        | mine or 0             | < known            | FROM_THE_DEAD    |
    | me        | mine or 0             | >= known or new    | CURRENT          |

    Incarnation 0 addresses whoever holds the name: only the operator's tools and a child's Hello use it.
    """
    if envelope.recipient != me:
        return Staleness.MISDIRECTED
    if envelope.recipient_incarnation not in (0, my_incarnation):
        return Staleness.FOR_ANOTHER_LIFE
    if known_incarnation is not None and envelope.sender_incarnation < known_incarnation:
        return Staleness.FROM_THE_DEAD
    return Staleness.CURRENT
