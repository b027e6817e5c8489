"""Messages between gateways and the embedder: texts as token ids there, one vector for each back.

A vector depends on its text alone, so a gateway sends texts again when an embedder has died; nothing else is needed.
"""

from __future__ import annotations

from messages.wire.arrays import Float32s, Int32s
from messages.wire.message import Count, Message


class Embed(Message, frozen=True):
    """Compute the vectors of texts: text i is the next `counts[i]` of `ids`."""

    group: Count  # the gateway's number of these texts
    counts: Int32s
    ids: Int32s


class Embedded(Message, frozen=True):
    """The answer to Embed: one vector after the other, of equal length."""

    group: Count
    vectors: Float32s
