"""What a scheduler tells gateways about the load of its replica."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec

from messages.wire.message import Count, Message

Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
TokensPerSecond = Annotated[float, msgspec.Meta(ge=0.0)]


class DegradationLevel(IntEnum):
    """What a replica leaves out because of its load. Each level has the measures of those below it."""

    NORMAL = 0
    NO_DRAFTS = 1  # no draft tokens are verified, which changes no token
    FEWER_ANSWERS = 2  # new requests get fewer answers to a prompt, where the operator has set how many
    SHORTER_ANSWERS = 3  # answers to new requests are shorter, where the operator has set how long they may be
    SHEDDING = 4  # new requests are refused, those of low priority and of the callers with most of the queue first


class ReplicaLoad(Message, frozen=True):
    """The load of a scheduler's replica, sent to a gateway that appears and to all gateways when it has changed by something
    that matters, every 100 ms at most.

    Tokens are prompt tokens that are not computed, as if none were cached, and the output that is expected. Rates are those of
    the last seconds in which others waited, or more while none did; 0: none have run.
    """

    number: Count  # grows with each report of this incarnation; one that is not higher than the last one is old
    waiting: Count  # sequences that wait for a slot, pages or the gang
    running: Count  # sequences in slots
    waiting_tokens: Count  # of the waiting sequences
    running_tokens: Count  # that the running sequences have left
    pages_used: Count  # pages that sequences hold
    pages: Count  # all pages of the replica; 0: no gang has told them yet
    prefill_rate: TokensPerSecond  # prompt tokens computed in a second
    decode_rate: TokensPerSecond  # tokens generated in a second
    level: DegradationLevel = DegradationLevel.NORMAL
    # what prefill takes on the device, as measured; 0: nothing is known
    token_s: Seconds = 0.0  # of a prompt's token
    pair_s: Seconds = 0.0  # of a pair of a prompt's token and a token before it
    token_bytes: Count = 0  # keys and values of a token at all ranks; 0: no gang has told them yet

    def prefill_s(self, n_tokens: int) -> float:
        """What prefill of a whole prompt takes on the device; 0 if nothing is known."""
        return self.token_s * n_tokens + self.pair_s * (n_tokens * n_tokens // 2)

    @property
    def rate(self) -> float:
        """Tokens computed in a second; 0: nothing has run."""
        return self.prefill_rate + self.decode_rate

    @property
    def wait_s(self) -> float:
        """How long the sequences that wait now will take to be computed; 0 while no rate is known, or if none wait."""
        return self.waiting_tokens / self.rate if self.rate > 0.0 else 0.0
