"""The header of every message between actors, and which messages are stale."""

from __future__ import annotations

from enum import Enum

import msgspec

from messages.wire.message import NO_TRACE, TraceId

ENVELOPE_VERSION = 3  # of what this release sends
READABLE_VERSIONS = frozenset({ENVELOPE_VERSION})  # a release must read what the last one sends


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Sender, receiver, the incarnation of each (the receiver's as the sender knows it), and the message's number on the link.

    `sequence` counts from 1 on each link from a sender's incarnation to a recipient's; a `LinkAnswer` acknowledges it. `link`
    numbers the links of the sender. `trace` is set only on messages that concern one traced request; elsewhere it is empty and
    takes two bytes. An envelope around an empty message asks for a LinkAnswer; its `sequence` is that of the last message sent.
    Values after these, of a later release, are ignored.
    """

    version: int
    sender: str
    sender_incarnation: int
    recipient: str
    recipient_incarnation: int
    sequence: int
    link: int
    trace: TraceId = NO_TRACE


class LinkAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the receiver of a link says to its sender: the number up to which it has handled the messages of this link, and the
    number of a missing message, from which on all must be sent again (0: none is missing)."""

    link: int
    handled: int
    wanted: int


class Staleness(Enum):
    """Whether a message is current, and if not, why it is dropped."""

    CURRENT = "current"
    FOR_OTHER_INCARNATION = "for_other_incarnation"  # addressed to an earlier (or other) incarnation of the receiver
    FROM_OLD_INCARNATION = "from_old_incarnation"  # sent by an incarnation that is older than the one known
    MISDIRECTED = "misdirected"  # not for this actor at all


def staleness(envelope: Envelope, me: str, my_incarnation: int, known_incarnation: int | None) -> Staleness:
    """Decide whether a message is stale. `known_incarnation`: the newest one of the sender that the receiver knows, or None.

    | recipient | recipient_incarnation | sender_incarnation | result                |
    |-----------|-----------------------|--------------------|-----------------------|
    | not me    | any                   | any                | MISDIRECTED           |
    | me        | not mine, not 0       | any                | FOR_OTHER_INCARNATION |
    | me        | mine or 0             | < known            | FROM_OLD_INCARNATION  |
    | me        | mine or 0             | >= known or new    | CURRENT               |

    Incarnation 0 addresses any incarnation of the recipient. Only operators' commands and a child's Hello use it.
    """
    if envelope.recipient != me:
        return Staleness.MISDIRECTED
    if envelope.recipient_incarnation not in (0, my_incarnation):
        return Staleness.FOR_OTHER_INCARNATION
    if known_incarnation is not None and envelope.sender_incarnation < known_incarnation:
        return Staleness.FROM_OLD_INCARNATION
    return Staleness.CURRENT
