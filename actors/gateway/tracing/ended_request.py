"""What the spans of a request are made from, as a small record: it is made and written down when the request ends.

The spans follow from it later, many at a time, in the thread that exports them. Made one by one at the end of each request they
take four times as long, because neither code nor data are in the processor's caches then.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.gateway.requests.request import Request
from actors.gateway.requests.request_spec import Api
from actors.gateway.requests.work_done import n_cached_of, work_of
from actors.gateway.tracing.attempts import ClosedAttempt, Outage
from messages.generation.sampling import Sampling
from messages.generation.sequences import Work
from messages.outcomes import Code, EndReason, NoCode
from messages.wire.trace_context import TraceContext

_MOST_DETAIL = 256  # characters
_MOST_REASONS = 16
_MOST_RESUBMITTED = 64
_SHORTEST_S = 0.001  # a scheduler that begins finds its gang after less than that: nothing was gone


class Trouble(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What most requests do not have. `resubmitted`: the indexes of sequences with more than one attempt, the first 64 of them.
    `lost`: the attempts of those that another one followed. `outages`: scheduler, begin and end.
    `resumed_s`: when a gateway took the request over from a dead one; 0: it has admitted it. `code`: why it failed."""

    resubmitted: list[int] = []
    lost: list[ClosedAttempt] = []
    outages: list[tuple[str, float, float]] = []
    resumed_s: float = 0.0
    code: Code | NoCode = ""
    detail: str = ""


class EndedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A traced request that is over. Times are Unix time in seconds, those of attempts and of `Trouble` too."""

    trace_id: bytes
    trace: TraceContext
    began_s: float
    ended_s: float
    first_token_s: float  # 0: there was none, or another gateway has shown it
    work: Work | None
    api: Api
    model: str
    request: str
    answer_id: str
    x_request_id: str
    tenant: str
    gateway: str
    scheduler: str  # of the last attempt; "": there was none
    ending: EndReason
    reasons: list[str]  # of each sequence
    n_prompt: int
    n_generated: int
    n_cached: int
    max_tokens: int
    n: int
    is_whole: bool
    sampling: Sampling
    cache_status: str
    is_fallback: bool
    n_submissions: int
    n_sequences: int
    trouble: Trouble | None = None


def ended_request(
    request: Request,
    ending: EndReason,
    closed: Sequence[ClosedAttempt],
    outages: Sequence[Outage],
    *,
    gateway: str,
    model: str,
    tenant: str,
    offset_s: float,
    taken_over_s: float,
) -> EndedRequest:
    """The record of a request. `offset_s`: Unix time minus the monotonic clock. `taken_over_s`: when this gateway took over the
    requests of a dead one, by the monotonic clock."""
    spec, sequences = request.spec, request.sequences
    assert spec.trace is not None, "it is traced"
    # a restored request's begin is known by its age, which can be short by the time in which the journal was read
    resumed_s = 0.0 if request.n_restored_items is None else max(taken_over_s, request.began_s) + offset_s
    n_submissions = sequences[0].n_submissions if len(sequences) == 1 else max([s.n_submissions for s in sequences])
    trouble = None
    if n_submissions > 1 or outages or resumed_s or ending in ("failed", "quarantined"):
        trouble = _trouble(request, closed, outages, resumed_s, offset_s)
    first_token_s = request.first_token_s if request.first_token_s and not resumed_s else 0.0
    return EndedRequest(
        spec.terms.trace_id, spec.trace, request.began_s + offset_s, request.ended_s + offset_s,
        first_token_s + offset_s if first_token_s else 0.0, work_of(request),
        spec.api, model, spec.request, spec.id_in_answers, spec.correlation_id, tenant,
        gateway, closed[-1].scheduler if closed else "",
        ending, [one.ended.reason for one in sequences[:_MOST_REASONS] if one.ended is not None],
        sum(request.n_prompt), request.n_generated, n_cached_of(request), spec.terms.max_tokens, spec.n, spec.is_whole,
        spec.sampling, spec.cache_status, bool(spec.fallback), n_submissions, len(sequences), trouble,
    )  # fmt: skip


def _trouble(
    request: Request, closed: Sequence[ClosedAttempt], outages: Sequence[Outage], resumed_s: float, offset_s: float
) -> Trouble:
    lost = [
        msgspec.structs.replace(one, ended_s=one.ended_s + offset_s)
        for one in closed
        if one.ordinal < request.sequences[one.index].n_submissions
    ]
    ends = [(one, one.ended_s or request.ended_s) for one in outages]
    ended = next((one.ended for one in request.sequences if one.ended is not None and one.ended.is_failure), None)
    return Trouble(
        [sequence.index for sequence in request.sequences if sequence.n_submissions > 1][:_MOST_RESUBMITTED],
        lost,
        [
            (one.scheduler, one.began_s + offset_s, end_s + offset_s)
            for one, end_s in ends
            if end_s - one.began_s >= _SHORTEST_S
        ],
        resumed_s,
        "" if ended is None else ended.code or "internal",
        "" if ended is None else ended.detail[:_MOST_DETAIL],
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(EndedRequest)


def encode_ended(ended: EndedRequest) -> bytes:
    """The bytes of a record."""
    return _encoder.encode(ended)


def decode_ended(data: bytes) -> EndedRequest:
    """The record in these bytes. Raises: ValueError."""
    return _decoder.decode(data)
