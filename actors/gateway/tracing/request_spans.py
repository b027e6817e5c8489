"""The spans of a request that is over. Pure.

    chat MODEL                                          the request, at its gateway
    |- queue | prefill | decode                         nothing was lost

    chat MODEL                                          something was lost
    |- attempt                    (error)               until its scheduler, gang or gateway died
    |- resubmission               -> link to the one before it, from its end on
    |  |- queue | prefill | decode
    |- gang recovery                                    the ranks were gone, and the scheduler waited for new ones

One gateway makes all of them when the request is over, so a process that dies takes no span with it: what a successor needs is
in the journal. Ids of the inner spans follow from that of the request's span, so whoever makes them gets the same.
"""

from __future__ import annotations

from actors.gateway.tracing.attempts import LossCause
from actors.gateway.tracing.ended_request import EndedRequest, Trouble
from actors.gateway.tracing.otlp import (
    Attribute,
    Span,
    SpanKind,
    SpanLink,
    SpanStatus,
    StatusCode,
    attribute,
    inner_span_id,
    nanoseconds,
)
from actors.gateway.tracing.request_attributes import operation_of, request_attributes

_FIRST_ATTEMPT, _FIRST_OUTAGE = 16, 1024  # numbers of inner spans; the phases have 1 to 3
_WITH_QUEUE = [attribute("tardigrade.with_queue", True)]


def request_spans(ended: EndedRequest) -> list[Span]:
    """The span of a traced request, then those inside it."""
    trace, trouble = ended.trace, ended.trouble
    inner = _InnerSpans(ended)
    whole = Span(
        trace_id=inner.trace_id,
        span_id=trace.span_id.hex(),
        parent_span_id=trace.parent_id.hex(),
        trace_state=trace.state,
        name=f"{operation_of(ended.api)} {ended.model}",
        kind=SpanKind.SERVER,
        start_time_unix_nano=nanoseconds(ended.began_s),
        end_time_unix_nano=nanoseconds(ended.ended_s),
        attributes=request_attributes(ended),
        status=SpanStatus(StatusCode.ERROR, trouble.detail) if trouble is not None and trouble.code else None,
    )
    if trouble is None:  # the most frequent case
        return [whole, *inner.phases(0, ended.began_s)]
    spans, parent, start_s = inner.attempts(trouble)
    return [whole, *spans, *inner.outages(trouble), *inner.phases(parent, start_s)]


class _InnerSpans:
    """Makes the inner spans of one request. The id of its span plus k is that of inner span k."""

    def __init__(self, ended: EndedRequest) -> None:
        self._ended, self.trace_id = ended, ended.trace_id.hex()
        self._number = int.from_bytes(ended.trace.span_id)

    def attempts(self, trouble: Trouble) -> tuple[list[Span], int, float]:
        """The lost attempts, and the last one of each sequence that has lost any. Returns beside them what the phases are a
        part of (0: the request itself), and when that began."""
        ended, spans = self._ended, list[Span]()
        parent, phases_s = 0, ended.began_s
        for index in trouble.resubmitted:
            losses = [(one.ended_s, one.cause, one.scheduler, one.n_tokens) for one in trouble.lost if one.index == index]
            if trouble.resumed_s:
                losses.insert(0, (trouble.resumed_s, LossCause.GATEWAY, "", 0))
            start_s, before = ended.began_s, 0
            for ended_s, cause, scheduler, n_tokens in losses:
                inner = _FIRST_ATTEMPT + len(spans)
                about = [attribute("tardigrade.loss.cause", cause.value)]
                if scheduler:
                    about += [attribute("tardigrade.scheduler", scheduler), attribute("tardigrade.tokens", n_tokens)]
                spans.append(self._attempt(inner, index, before, start_s, ended_s, about, cause))
                start_s, before = ended_s, inner
            if before:
                inner = _FIRST_ATTEMPT + len(spans)
                spans.append(self._attempt(inner, index, before, start_s, ended.ended_s, [], None))
                if ended.n_sequences == 1:
                    parent, phases_s = inner, start_s
        return spans, parent, phases_s

    def outages(self, trouble: Trouble) -> list[Span]:
        """The times in which the ranks of a replica were gone."""
        return [
            self._span(_FIRST_OUTAGE + i, 0, "gang recovery", began_s, ended_s, [attribute("tardigrade.scheduler", scheduler)])
            for i, (scheduler, began_s, ended_s) in enumerate(trouble.outages)
        ]

    def phases(self, parent: int, start_s: float) -> list[Span]:
        """Queue, prefill and decode of the last attempt, as far as they are known."""
        ended, work, end_s = self._ended, self._ended.work, self._ended.ended_s
        if ended.cache_status and not ended.scheduler:  # it was not computed
            return []
        if work is not None:
            token_s = max(end_s - work.decode_s, start_s)
            slot_s = max(token_s - work.prefill_s, start_s)
            return [
                self._span(1, parent, "queue", start_s, slot_s),
                self._span(2, parent, "prefill", slot_s, token_s),
                self._span(3, parent, "decode", token_s, end_s),
            ]
        if not ended.first_token_s:
            return [self._span(1, parent, "queue", start_s, end_s)]
        token_s = min(max(ended.first_token_s, start_s), end_s)  # the gateway has ended it, and no scheduler has told more
        return [
            self._span(2, parent, "prefill", start_s, token_s, _WITH_QUEUE),
            self._span(3, parent, "decode", token_s, end_s),
        ]

    def _attempt(
        self,
        inner: int,
        index: int,
        before: int,
        start_s: float,
        end_s: float,
        about: list[Attribute],
        cause: LossCause | None,
    ) -> Span:
        """One attempt of a sequence. `before`: the span of the lost one before it; 0: it is the first. `cause`: None: it was
        not lost."""
        links = [SpanLink(self.trace_id, self._id(before))] if before else []
        status = None if cause is None else SpanStatus(StatusCode.ERROR, cause.value)
        about = [*about, attribute("tardigrade.sequence", index)]
        return self._span(inner, 0, "resubmission" if before else "attempt", start_s, end_s, about, links, status)

    def _id(self, inner: int) -> str:
        return inner_span_id(self._number, inner)

    def _span(
        self,
        inner: int,
        parent: int,
        name: str,
        start_s: float,
        end_s: float,
        about: list[Attribute] | None = None,
        links: list[SpanLink] | None = None,
        status: SpanStatus | None = None,
    ) -> Span:
        return Span(
            trace_id=self.trace_id,
            span_id=self._id(inner),
            parent_span_id=self._id(parent),
            name=name,
            kind=SpanKind.INTERNAL,
            start_time_unix_nano=nanoseconds(start_s),
            end_time_unix_nano=nanoseconds(max(end_s, start_s)),
            attributes=about or [],
            links=links or [],
            status=status,
        )
