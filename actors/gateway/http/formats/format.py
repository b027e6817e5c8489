"""What differs between the APIs' answers: the form of a stream's events, and the body of a whole answer."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from actors.gateway.requests.request import GrowingSequence
from actors.gateway.requests.request_spec import Ended

EVENT_STREAM = b"text/event-stream; charset=utf-8"
PING = b": waiting\n"  # a comment in server-sent events
PART_BASE = 10**12  # see `StreamWriter.has_parts`; more than a stream has events


class StreamWriter(Protocol):
    """Writes the events of one streamed request, as one API shows them.

    A method returns each event without the newline that ends it. What it returns depends on the request, the tokens and the
    endings alone, so that another process writes the same bytes.
    """

    content_type: bytes
    has_ids: bool  # an event may have an id: the format is server-sent events
    ping: bytes  # what is sent into a silent stream, with its newlines; it does nothing to its reader
    # a client may say that it has some parts of an event, which empty lines divide, or some of the openings: it goes on after
    # event n and these parts from start n + parts * PART_BASE. Event 1 counts the openings among its parts.
    has_parts: bool = False

    def openings(self) -> list[bytes]:
        """The events before the first token; [] if there are none."""
        ...

    def token(self, sequence: GrowingSequence, number: int) -> bytes:
        """The event of one token; b"" if it shows nothing. Called for each token of a sequence in order."""
        ...

    def tokens(self, sequence: GrowingSequence, first: int, stop: int) -> list[bytes]:
        """The events of the tokens `first` to `stop` - 1, as `token` returns them."""
        return [self.token(sequence, number) for number in range(first, stop)]

    def token_sizes(self, sequence: GrowingSequence, first: int, stop: int) -> np.ndarray | None:
        """The lengths of what `token` returns for the tokens `first` to `stop` - 1: int64 [n]; None where only making them
        tells. Where there are lengths, `token` need not be called for these tokens."""
        return None

    def ending(self, sequence: GrowingSequence) -> bytes:
        """The event of an ending, with the text that became certain by it; b"" if it shows nothing."""
        ...

    def last(self, failure: Ended | None) -> list[bytes]:
        """The events after the last turn of a request that is over: at least one. `failure`: of one of its sequences."""
        ...
