"""Simulated servers that trace everything: under all faults each accepted request has one record, and that one whole trace."""

from __future__ import annotations

from collections import Counter

import pytest

from actors.gateway.requests.request import Request
from actors.gateway.tracing.ended_call import RefusedCall, decode_call, is_call
from actors.gateway.tracing.ended_request import decode_ended
from actors.gateway.tracing.exporter import Exporter
from actors.gateway.tracing.request_spans import request_spans
from actors.gateway.tracing.spool import Spool
from tests.support.depth import at_depth
from tests.support.otlp.traces import check_trace, seen_of
from tests.support.simulation import world

pytestmark = pytest.mark.seeds
N_SEEDS = 6


@pytest.mark.parametrize("seed", range(9100, 9100 + at_depth(N_SEEDS)))
def test_every_accepted_request_has_one_trace(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted, written = set[str](), list[bytes]()
    was_recorded, was_added = Request.recorded, Spool.add

    def recorded(request: Request) -> None:
        accepted.add(request.spec.request)
        was_recorded(request)

    def added(spool: Spool, span_id: bytes, record: bytes) -> bool:
        assert was_added(spool, span_id, record)
        written.append(record)
        return True

    monkeypatch.setattr(Request, "recorded", recorded)
    monkeypatch.setattr(Spool, "add", added)
    monkeypatch.setattr(Exporter, "start", lambda exporter: None)  # nobody reads the files
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    outcome = world.simulate(seed)
    assert outcome.problems == []
    calls = [decode_call(record) for record in written if is_call(record)]
    ended = [decode_ended(record) for record in written if not is_call(record)]
    assert Counter(one.request for one in ended) == dict.fromkeys(accepted, 1)
    assert all(isinstance(call.what, RefusedCall) for call in calls)  # nobody asks for vectors
    assert len({one.trace.span_id for one in (*ended, *calls)}) == len(written)
    for one in ended:
        check_trace([seen_of(span) for span in request_spans(one)])
