"""Spans as a test reads them, and whether those of one request are a complete trace. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from actors.gateway.tracing.otlp import Span, SpanKind

SERVER = "SPAN_KIND_SERVER"


@dataclass(frozen=True)
class SeenSpan:
    """One span; times are nanoseconds of Unix time. `links`: ids of spans."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    is_error: bool
    state: str = ""


def seen_span(span: dict[str, Any]) -> SeenSpan:
    """A span in protobuf's JSON."""
    return SeenSpan(
        trace_id=_hex(span["traceId"]),
        span_id=_hex(span["spanId"]),
        parent_id=_hex(span.get("parentSpanId", "")),
        name=span["name"],
        kind=span["kind"],
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        attributes={one["key"]: _value(one["value"]) for one in span.get("attributes", [])},
        links=tuple(_hex(link["spanId"]) for link in span.get("links", [])),
        is_error=span.get("status", {}).get("code") == "STATUS_CODE_ERROR",
        state=span.get("traceState", ""),
    )


def seen_of(span: Span) -> SeenSpan:
    """One of our own spans, before it is encoded."""
    return SeenSpan(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_id=span.parent_span_id,
        name=span.name,
        kind=SERVER if span.kind == SpanKind.SERVER else "",
        start_ns=int(span.start_time_unix_nano),
        end_ns=int(span.end_time_unix_nano),
        attributes={one["key"]: _value(one["value"]) for one in span.attributes},
        links=tuple(link.span_id for link in span.links),
        is_error=span.status is not None,
        state=span.trace_state,
    )


def request_of(spans: list[SeenSpan]) -> SeenSpan:
    """The span of the one request among the spans of a trace."""
    (request,) = [span for span in spans if span.kind == SERVER]
    return request


def check_trace(spans: list[SeenSpan]) -> None:
    """Check that these are one complete trace of one request: every span inside another one, in its time, every link to a lost
    attempt that ended when this one began, and the phases of the attempt that ended in order; of several sequences they are a
    part of the request itself."""
    request = request_of(spans)
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        assert span.start_ns <= span.end_ns
        if span is not request:
            parent = by_id[span.parent_id]
            assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns, (span, parent)
        for link in span.links:
            lost = by_id[link]
            assert lost.is_error, lost
            assert lost.end_ns == span.start_ns
    again = sorted((span for span in spans if span.name == "resubmission"), key=lambda span: span.start_ns)
    first = [span for span in spans if span.name == "attempt"]
    assert all(len(span.links) == 1 for span in again)
    assert bool(again) == bool(first)
    assert all(span.is_error for span in first)
    phases = sorted((span for span in spans if span.name in ("queue", "prefill", "decode")), key=lambda span: span.start_ns)
    names = [span.name for span in phases]
    assert sorted(names) == sorted(set(names)), names
    if not phases:
        assert "tardigrade.cache" in request.attributes
        assert not again
        return
    is_alone = len(request.attributes["gen_ai.response.finish_reasons"]) == 1
    assert {span.parent_id for span in phases} == {again[-1].span_id if again and is_alone else request.span_id}
    for before, after in pairwise(phases):
        assert before.end_ns == after.start_ns
    assert phases[-1].end_ns == request.end_ns


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _value(value: dict[str, Any]) -> Any:
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values", [])]
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()))
