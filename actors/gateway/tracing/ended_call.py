"""Calls that have a trace without a request in the journal, as records and as spans: refused calls, and embeddings. Pure.

    refused PATH                                        an error, with its code and the limit that it has passed

    embeddings MODEL                                    the call, from its arrival to its vectors
    |- queue | compute                                  until its first texts are with the embedder, and from then on

A record is a map of msgpack, by which it is told from that of a request, which is an array. A gateway that is killed while it
computes embeddings leaves no trace of these calls: nobody goes on with them.
"""

from __future__ import annotations

import msgspec

from actors.gateway.tracing.otlp import Attribute, Span, SpanKind, SpanStatus, StatusCode, attribute, inner_span_id, nanoseconds
from messages.wire.trace_context import TraceContext

_SHORTEST_MAP, _LONGEST_MAP = 0x80, 0x8F  # the first byte of a map of at most 15 fields
_QUEUE, _COMPUTE = 1, 2  # numbers of the inner spans
_MOST_CHARACTERS = 120  # of a text that a client has chosen


class RefusedCall(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A call that was refused. `limit`: the one that it has passed, as name=number; "": none. `field`: the one at fault."""

    path: str
    status: int
    code: str
    limit: str = ""
    field: str = ""


class EmbeddingsCall(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A call for vectors. `sent_s`: when its first texts went to the embedder; 0: none did. `n_sent`: messages with texts,
    those that were sent again after a death too. `n_tokens`: 0: its client has left before the vectors came."""

    model: str
    api: str
    n_texts: int
    n_tokens: int
    sent_s: float
    n_sent: int


class EndedCall(msgspec.Struct, frozen=True):
    """A traced call that is over. Times are Unix time in seconds."""

    trace_id: bytes
    trace: TraceContext
    began_s: float
    ended_s: float
    gateway: str
    request: str
    x_request_id: str
    tenant: str
    what: RefusedCall | EmbeddingsCall


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(EndedCall)


def encode_call(call: EndedCall) -> bytes:
    """The bytes of a record."""
    return _encoder.encode(call)


def is_call(record: bytes) -> bool:
    """True if this is the record of a call, and not that of a request."""
    return _SHORTEST_MAP <= record[0] <= _LONGEST_MAP


def decode_call(record: bytes) -> EndedCall:
    """The record in these bytes. Raises: ValueError."""
    return _decoder.decode(record)


def call_spans(call: EndedCall) -> list[Span]:
    """The span of a call, then those inside it."""
    what, status = call.what, None
    if isinstance(what, RefusedCall):
        name, about, status = f"refused {what.path}".rstrip(), _refused(what), SpanStatus(StatusCode.ERROR, what.code)
    else:
        name, about = f"embeddings {what.model}", _embeddings(what)
    named = (
        ("tardigrade.request.id", call.request),
        ("tardigrade.x_request_id", call.x_request_id),
        ("tardigrade.gateway", call.gateway),
        ("tardigrade.tenant", call.tenant),
    )
    whole = Span(
        trace_id=call.trace_id.hex(),
        span_id=call.trace.span_id.hex(),
        parent_span_id=call.trace.parent_id.hex(),
        trace_state=call.trace.state,
        name=name,
        kind=SpanKind.SERVER,
        start_time_unix_nano=nanoseconds(call.began_s),
        end_time_unix_nano=nanoseconds(call.ended_s),
        attributes=about + [attribute(key, value[:_MOST_CHARACTERS]) for key, value in named if value],
        status=status,
    )
    if isinstance(what, RefusedCall):
        return [whole]
    sent_s = min(max(what.sent_s or call.ended_s, call.began_s), call.ended_s)
    queue = _inner(call, _QUEUE, "queue", call.began_s, sent_s)
    return [whole, queue, _inner(call, _COMPUTE, "compute", sent_s, call.ended_s)] if what.sent_s else [whole, queue]


def _refused(what: RefusedCall) -> list[Attribute]:
    about = [attribute("error.type", what.code), attribute("http.response.status_code", what.status)]
    named = (
        ("url.path", what.path),
        ("tardigrade.refusal.limit", what.limit),
        ("tardigrade.refusal.field", what.field[:_MOST_CHARACTERS]),
    )
    return about + [attribute(key, value) for key, value in named if value]


def _embeddings(what: EmbeddingsCall) -> list[Attribute]:
    about = [
        attribute("gen_ai.operation.name", "embeddings"),
        attribute("gen_ai.provider.name", "tardigrade"),
        attribute("gen_ai.request.model", what.model),
        attribute("gen_ai.response.model", what.model),
        attribute("gen_ai.usage.input_tokens", what.n_tokens),
        attribute("tardigrade.api", what.api),
        attribute("tardigrade.texts", what.n_texts),
        attribute("tardigrade.ending", "stop" if what.n_tokens else "cancelled"),
    ]
    return [*about, attribute("tardigrade.submissions", what.n_sent)] if what.n_sent else about


def _inner(call: EndedCall, number: int, name: str, start_s: float, end_s: float) -> Span:
    return Span(
        trace_id=call.trace_id.hex(),
        span_id=inner_span_id(int.from_bytes(call.trace.span_id), number),
        parent_span_id=call.trace.span_id.hex(),
        name=name,
        kind=SpanKind.INTERNAL,
        start_time_unix_nano=nanoseconds(start_s),
        end_time_unix_nano=nanoseconds(end_s),
    )
