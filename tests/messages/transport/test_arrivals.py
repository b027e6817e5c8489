"""What an inbox takes from whom: from names that an actor can have, and no more than was promised to be sent."""

from __future__ import annotations

import pytest

from messages.transport.arrivals import ArrivalKind, Arrivals
from messages.transport.outbox import WINDOW_MESSAGES
from messages.wire.envelope import ENVELOPE_VERSION, Envelope


def envelope(sender: str, number: int) -> Envelope:
    return Envelope(ENVELOPE_VERSION, sender, 1, "worker/0.0", 1, number, 1)


@pytest.mark.parametrize(
    "sender", ["supervisor/1", "supervisor", "nobody/0", "scheduler/0 ", "scheduler/00000", "operator/", ""]
)
def test_a_sender_that_can_be_no_actor_has_no_link(sender: str) -> None:
    """Children obey whoever has the supervisor's role: only one name has it."""
    arrivals = Arrivals()
    assert arrivals.note(envelope(sender, 1), b"route") is ArrivalKind.OLD_LINK
    assert arrivals.question(envelope(sender, 1), b"route") is None
    assert len(arrivals) == 0


def test_a_sender_that_ignores_its_credit_fills_no_memory() -> None:
    """Mail of unannounced senders waits, and must be bounded although they are not who they say."""
    arrivals, sender = Arrivals(), "gateway/7"
    taken = [arrivals.note(envelope(sender, number), b"route") for number in range(1, 10 * WINDOW_MESSAGES)]
    n_taken = taken.count(ArrivalKind.NEXT)
    assert WINDOW_MESSAGES <= n_taken <= 3 * WINDOW_MESSAGES, "one that follows the protocol is never cut"
    assert taken[-1] is ArrivalKind.BEYOND_CREDIT
    arrivals.handled(deferred=())
    assert arrivals.note(envelope(sender, n_taken + 1), b"route") is ArrivalKind.NEXT, "when they are handled it may go on"
