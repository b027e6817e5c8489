"""The spans of a request that is over. Pure.

    chat MODEL                                          the request, at its gateway
    |- queue | prefill | decode                         nothing was lost

    chat MODEL                                          something was lost
    |- attempt                    (error)               until its scheduler, gang or gateway died
    |- resubmission               -> link to the one before it, from its end on
    |  |- queue | prefill | decode
    |- gang recovery                                    the ranks were gone, and the scheduler waited for new ones

One gateway makes all of them when the request ends, so a process that dies takes no span with it: what a successor needs is in
the journal. Ids of the inner spans follow from that of the request's span, so whoever makes them gets the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.gateway.requests.request import Request
from actors.gateway.requests.work_done import work_of
from actors.gateway.tracing.attempts import AttemptNotes, LossCause
from actors.gateway.tracing.otlp import Attribute, Span, SpanKind, SpanLink, SpanStatus, StatusCode, attribute, nanoseconds
from actors.gateway.tracing.request_attributes import operation_of, request_attributes
from messages.outcomes import EndReason

_ID_MASK = (1 << 64) - 1
_FIRST_ATTEMPT, _FIRST_OUTAGE = 16, 1024  # numbers of inner spans; the phases have 1 to 3
_MOST_DETAIL = 256  # characters


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """What a span tells beside its request. `unix_offset_s`: Unix time minus the monotonic clock. `tenant` "": none."""

    gateway: str
    model: str
    tenant: str
    unix_offset_s: float
    notes: AttemptNotes


def request_spans(request: Request, ending: EndReason, facts: SpanFacts) -> list[Span]:
    """The span of a traced request, then those inside it."""
    spec, trace = request.spec, request.spec.trace
    assert trace is not None, "it is traced"
    one = _Spans(request, facts, spec.terms.trace_id.hex(), int.from_bytes(trace.span_id))
    failed = next((s.ended for s in request.sequences if s.ended is not None and s.ended.is_failure), None)
    whole = Span(
        trace_id=one.trace_id,
        span_id=trace.span_id.hex(),
        parent_span_id=trace.parent_id.hex(),
        trace_state=trace.state,
        name=f"{operation_of(spec)} {facts.model}",
        kind=SpanKind.SERVER,
        start_time_unix_nano=one.time(request.began_s),
        end_time_unix_nano=one.time(request.ended_s),
        attributes=request_attributes(request, ending, facts.model, facts.gateway, facts.tenant, facts.notes),
        status=None if failed is None else SpanStatus(StatusCode.ERROR, failed.detail[:_MOST_DETAIL]),
    )
    return [whole, *one.inner()]


class _Spans:
    """Makes the inner spans of one request. `number` + k is the id of inner span k."""

    def __init__(self, request: Request, facts: SpanFacts, trace_id: str, number: int) -> None:
        self._request, self._facts, self.trace_id, self._number = request, facts, trace_id, number
        self._offset_s = facts.unix_offset_s

    def time(self, monotonic_s: float) -> str:
        """A time of the monotonic clock as spans have it."""
        return nanoseconds(monotonic_s + self._offset_s)

    def inner(self) -> list[Span]:
        """All spans inside the one of the request."""
        notes, request = self._facts.notes, self._request
        if not notes.resumed_s and not notes.outages and len(notes.closed) <= len(request.sequences):
            return self._phases(0, request.began_s)  # the most frequent case
        spans, parent, start_s = self._attempts()
        spans += [
            self._span(
                _FIRST_OUTAGE + i, 0, "gang recovery", outage.began_s, outage.ended_s or request.ended_s,
                [attribute("tardigrade.scheduler", outage.scheduler)],
            )
            for i, outage in enumerate(notes.outages)
        ]  # fmt: skip
        return spans + self._phases(parent, start_s)

    def _attempts(self) -> tuple[list[Span], int, float]:
        """The lost attempts, and the last one of each sequence that has lost any. Returns beside them what the phases are a
        part of (0: the request itself), and when that began."""
        request, notes = self._request, self._facts.notes
        spans, last = list[Span](), (0, request.began_s)
        lost = notes.lost(request)
        for sequence in request.sequences:
            own = [one for one in lost if one.index == sequence.index]
            ends = [(one.ended_s, one.cause, one.scheduler, one.n_tokens) for one in own]
            if notes.resumed_s and (sequence.ended is None or sequence.n_submissions > 1):
                ends.insert(0, (notes.resumed_s, LossCause.GATEWAY, "", 0))
            start_s, before = request.began_s, 0
            for ended_s, cause, scheduler, n_tokens in ends:
                inner = _FIRST_ATTEMPT + len(spans)
                about = [attribute("tardigrade.loss.cause", cause.value), attribute("tardigrade.tokens", n_tokens)]
                about += [attribute("tardigrade.scheduler", scheduler)] if scheduler else []
                spans.append(self._attempt(inner, sequence.index, before, start_s, ended_s, about, cause))
                start_s, before = ended_s, inner
            if before:
                inner = _FIRST_ATTEMPT + len(spans)
                spans.append(self._attempt(inner, sequence.index, before, start_s, request.ended_s, [], None))
                last = (inner, start_s) if len(request.sequences) == 1 else last
        return spans, *last

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

    def _phases(self, parent: int, start_s: float) -> list[Span]:
        """Queue, prefill and decode of the last attempt, as far as they are known."""
        request, work = self._request, work_of(self._request)
        end_s = request.ended_s
        if request.spec.cache_status:
            return []
        if work is not None:
            token_s = max(end_s - work.decode_s, start_s)
            slot_s = max(token_s - work.prefill_s, start_s)
            return [
                self._span(1, parent, "queue", start_s, slot_s),
                self._span(2, parent, "prefill", slot_s, token_s),
                self._span(3, parent, "decode", token_s, end_s),
            ]
        if not request.first_token_s:
            return [self._span(1, parent, "queue", start_s, end_s)]
        token_s = min(max(request.first_token_s, start_s), end_s)  # the gateway has ended it, and no scheduler has told more
        with_queue = [attribute("tardigrade.with_queue", True)]
        return [
            self._span(2, parent, "prefill", start_s, token_s, with_queue),
            self._span(3, parent, "decode", token_s, end_s),
        ]

    def _id(self, inner: int) -> str:
        return f"{(self._number + inner) & _ID_MASK:016x}"

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
            start_time_unix_nano=self.time(start_s),
            end_time_unix_nano=self.time(max(end_s, start_s)),
            attributes=about or [],
            links=links or [],
            status=status,
        )
