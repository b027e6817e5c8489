"""Spans in the JSON form of OTLP, the protocol of OpenTelemetry.

A library that builds spans as objects and encodes them with protobuf takes 180 us for the four spans of a request on one core;
these structs, encoded by msgspec, take 11 us (docs/log.md). Ids are hexadecimal, times are nanoseconds of Unix time,
and 64-bit numbers are texts, as the protocol asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec

Value = str | bool | int | float | Sequence[str]
Attribute = dict[str, Any]  # the JSON of one KeyValue


class SpanKind(IntEnum):
    """What a span stands for."""

    INTERNAL = 1
    SERVER = 2


class StatusCode(IntEnum):
    """Whether what a span stands for has succeeded, where somebody has judged that."""

    OK = 1
    ERROR = 2


class SpanStatus(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The outcome of a span."""

    code: int
    message: str = ""


class SpanLink(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Another span that this one has to do with."""

    trace_id: str
    span_id: str
    attributes: list[Attribute] = []


class Span(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel", kw_only=True):
    """One span."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    trace_state: str = ""
    name: str
    kind: int = msgspec.field(default=0)
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: list[Attribute] = []
    links: list[SpanLink] = []
    status: SpanStatus | None = None  # None: nobody has judged what it stands for


_ID_MASK = (1 << 64) - 1
_encoder = msgspec.json.Encoder()


def attribute(key: str, value: Value) -> Attribute:
    """One attribute."""
    if isinstance(value, str):
        return {"key": key, "value": {"stringValue": value}}
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"arrayValue": {"values": [{"stringValue": one} for one in value]}}}


def encode_spans(spans: list[Span]) -> bytes:
    """Spans as JSON objects with commas between them."""
    return _encoder.encode(spans)[1:-1]


def nanoseconds(unix_s: float) -> str:
    """A time as the protocol writes it. A float of Unix time in seconds is exact to a fourth of a microsecond."""
    return str(int(unix_s * 1e6) * 1000)


def inner_span_id(root: int, number: int) -> str:
    """The id of a span inside of a call, as the protocol writes it. `root`: that of the call's own span, which has number 0."""
    return f"{(root + number) & _ID_MASK:016x}"


class RequestBody:
    """Bodies of export calls: `spans` that were encoded before, of one resource."""

    def __init__(self, resource: Mapping[str, Value], version: str) -> None:
        """`version`: of this program."""
        attributes = _encoder.encode([attribute(key, value) for key, value in resource.items()])
        scope = _encoder.encode({"name": "tardigrade", "version": version})
        self._head = b'{"resourceSpans":[{"resource":{"attributes":%b},"scopeSpans":[{"scope":%b,"spans":[' % (
            attributes,
            scope,
        )

    def of(self, spans: Iterable[bytes]) -> bytes:
        """The body with these results of `encode_spans`."""
        return self._head + b",".join(spans) + b"]}]}]}"
