"""The trace that a request belongs to, as W3C Trace Context writes it in the headers `traceparent` and `tracestate`.

00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
|  |                                |                +-- flags; the lowest bit: the trace is recorded
|  trace id                         span id of who calls
version
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from messages.wire.message import Part

MAX_STATE_CHARACTERS = 512  # of a `tracestate` that is passed on, as the standard asks at least
TraceState = Annotated[str, msgspec.Meta(max_length=MAX_STATE_CHARACTERS)]
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
_SAMPLED = 1
# version, trace id, parent id and flags, all in lower case; later versions than 00 may add more
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e]*")


class TraceContext(Part, frozen=True, omit_defaults=True):
    """The span of a client that calls, and the span of its request. The trace id stands beside it, in the terms."""

    parent_id: bytes = b""  # the client's span; b"": the trace begins here
    is_sampled: bool = False  # the client's span is recorded
    state: str = ""  # `tracestate`, which is passed on as it is
    span_id: bytes = b""  # of the request; b"": its spans are not recorded


class TraceCaller(Part, frozen=True):
    """What the two headers of a call say: 16 bytes of trace id, and the rest."""

    trace_id: bytes
    context: TraceContext


def trace_caller_of(traceparent: str, tracestate: str = "") -> TraceCaller | None:
    """What the headers say; None if `traceparent` is missing or breaks the rules: the standard demands that such a header is
    ignored. A `tracestate` that is too long, or not printable, is left out."""
    match = _TRACEPARENT.fullmatch(traceparent.strip(" \t"))
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    trace, parent = bytes.fromhex(trace_id), bytes.fromhex(parent_id)
    if version == "ff" or not any(trace) or not any(parent) or (version == "00" and rest):
        return None
    state = tracestate.strip(" \t")
    is_kept = len(state) <= MAX_STATE_CHARACTERS and _STATE.fullmatch(state) is not None
    is_sampled = bool(int(flags, 16) & _SAMPLED)
    context = TraceContext(parent_id=parent, is_sampled=is_sampled, state=state if is_kept else "")
    return TraceCaller(trace_id=trace, context=context)


def traceparent_of(trace_id: bytes, span_id: bytes) -> str:
    """The header that names a recorded span."""
    return f"00-{trace_id.hex()}-{span_id.hex()}-{_SAMPLED:02x}"
