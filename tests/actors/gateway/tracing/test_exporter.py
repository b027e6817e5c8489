"""Spans on their way to a collector: over real HTTP, in both encodings, while it is away, busy, or refuses them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from actors.gateway.settings import TracesSettings
from actors.gateway.tracing import exporter as exporter_file
from actors.gateway.tracing.attempts import ClosedAttempt, LossCause
from actors.gateway.tracing.collector import CollectorConnection, Delivered, Outcome, rejected_spans
from actors.gateway.tracing.ended_request import EndedRequest, Trouble, encode_ended
from actors.gateway.tracing.export_settings import export_settings
from actors.gateway.tracing.exporter import GIVE_UP_S, LONGEST_WAIT_S, Exporter, Retries
from actors.gateway.tracing.otlp import RequestBody
from actors.gateway.tracing.spool import Spool
from actors.gateway.tracing.trace_metrics import TraceMetrics
from messages.generation.sampling import Sampling
from messages.wire.trace_context import TraceContext
from tests.support.otlp.ended_requests import BEGAN_S, PARENT, SPAN, ended
from tests.support.otlp.span_collector import SpanCollector, span_collector
from tests.support.otlp.traces import SERVER, check_trace, request_of

LOST = ClosedAttempt(0, 1, "scheduler/0", BEGAN_S + 1.0, LossCause.SCHEDULER, 2)
ERROR = ended(
    ending="failed", reasons=["failed"], tenant="t", is_fallback=True, n_submissions=2, sampling=Sampling(temperature=0.5),
    trouble=Trouble([0], [LOST], [], 0.0, "internal", "why"),
)  # fmt: skip


class Rig:
    """An exporter over a spool; `counts` are its metrics."""

    def __init__(self, folder: Path, send: Callable[[bytes], Delivered]) -> None:
        self.registry = CollectorRegistry()
        self.spool = Spool(folder / "spool", 0, 1, 1000, 100)
        body = RequestBody({"service.name": "tardigrade"}, "1.0")
        self.exporter = Exporter(self.spool, send, body, TraceMetrics(self.registry), "http://collector")
        self.spool.on_complete = self.exporter.wake
        self.exporter.start()

    def add(self, *records: EndedRequest) -> None:
        """One more file."""
        for record in records:
            assert self.spool.add(record.trace.span_id, encode_ended(record))
        self.spool.seal()

    def n_exported(self) -> float:
        """Traces that the collector has taken."""
        return self.registry.get_sample_value("tardigrade_traces_exported_total") or 0.0

    def n_dropped(self, why: str) -> float:
        """Traces that were dropped for this reason."""
        return self.registry.get_sample_value("tardigrade_traces_dropped_total", {"why": why}) or 0.0


def connection_to(collector: SpanCollector, **variables: str) -> CollectorConnection:
    environment = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
    return CollectorConnection(export_settings(TracesSettings(folder="", endpoint=collector.endpoint), environment))


@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_field_arrives(tmp_path: Path, protocol: str, compression: str) -> None:
    with span_collector() as collector:
        connection = connection_to(collector, PROTOCOL=protocol, COMPRESSION=compression, HEADERS="api-key=k")
        rig = Rig(tmp_path, connection.send)
        rig.add(ERROR)
        collector.wait(lambda: rig.n_exported() == 1)
        rig.exporter.stop(60.0)
    request = request_of(collector.spans)
    check_trace(collector.spans)
    assert (request.trace_id, request.span_id, request.parent_id) == ("4b" * 16, SPAN.hex(), PARENT.hex())
    assert (request.name, request.kind, request.state, request.is_error) == ('chat m\u00fc "x"', SERVER, "a=b", True)
    assert (request.start_ns, request.end_ns) == (1_700_000_000 * 10**9, 1_700_000_010 * 10**9)
    about = request.attributes
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.response.time_to_first_chunk"]) == (3, 4.0)
    assert (about["gen_ai.response.finish_reasons"], about["gen_ai.request.stream"]) == (["failed"], True)
    assert (about["gen_ai.request.temperature"], about["error.type"]) == (0.5, "internal")
    assert collector.headers[0]["api-key"] == "k"
    assert collector.resources == [{"attributes": [{"key": "service.name", "value": {"stringValue": "tardigrade"}}]}]
    assert not list((tmp_path / "spool").iterdir())


def test_a_collector_that_is_away_and_busy_gets_everything_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_file, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(exporter_file, "LONGEST_WAIT_S", 0.05)
    first = SpanCollector()
    port, connection = first.port, connection_to(first)
    first.stop()
    rig = Rig(tmp_path, connection.send)
    for number in range(3):
        rig.add(ended(trace=TraceContext(span_id=b"%08d" % number)))
    second = SpanCollector(port)
    second.statuses += [503, 429]
    second.wait(lambda: rig.n_exported() == 3)
    rig.exporter.stop(60.0)
    second.stop()
    requests = [span.span_id for span in second.spans if span.kind == SERVER]
    assert requests == [(b"%08d" % number).hex() for number in range(3)]
    assert rig.spool.n_waiting == 0


def test_what_is_refused_for_good_is_counted_and_holds_back_nothing(tmp_path: Path) -> None:
    with span_collector() as collector:
        collector.statuses.append(413)
        rig = Rig(tmp_path, connection_to(collector).send)
        rig.add(ERROR)
        rig.add(ERROR)
        collector.wait(lambda: rig.n_exported() == 1)
        assert rig.n_dropped("refused") == 1
        rig.exporter.stop(60.0)


def test_spans_that_a_collector_does_not_take_of_a_call_are_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, lambda body: Delivered(Outcome.TAKEN, n_rejected=4))
    rig.add(ERROR, ERROR, ERROR)
    rig.exporter.stop(60.0)
    assert (rig.n_exported(), rig.n_dropped("refused")) == (2, 1)


@pytest.mark.parametrize("answer", [b'{"x":' + b"[" * 30_000, b'{"partialSuccess": {"rejectedSpans": "-8"}}', b"{", b"\xff"])
def test_an_answer_that_says_nothing_rejects_no_span(answer: bytes) -> None:
    assert rejected_spans(answer, "application/json") == 0


def test_a_call_that_cannot_be_made_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with span_collector() as collector:
        connection = connection_to(collector)
        monkeypatch.setitem(connection._headers, "api-key", "a\nb")
        assert connection.send(b"{}").outcome is Outcome.LATER


def test_a_file_that_somebody_has_removed_is_counted(tmp_path: Path) -> None:
    collector_is_there = threading.Event()
    rig = Rig(tmp_path, lambda body: (collector_is_there.wait(60.0), Delivered(Outcome.TAKEN))[1])
    rig.add(ERROR)
    rig.add(ERROR, ERROR)
    (tmp_path / "spool" / "0-1.2").unlink()
    collector_is_there.set()
    rig.exporter.stop(60.0)
    assert (rig.n_exported(), rig.n_dropped("unreadable")) == (1, 2)
    assert not rig.spool.complete


def test_a_stop_leaves_what_the_collector_does_not_take(tmp_path: Path) -> None:
    calls: list[bytes] = []
    rig = Rig(tmp_path, lambda body: (calls.append(body), Delivered(Outcome.LATER, "away"))[1])
    rig.add(ERROR)
    rig.exporter.stop(60.0)
    assert len(list((tmp_path / "spool").iterdir())) == 1
    assert calls


def test_waits_grow_to_a_bound_and_an_end() -> None:
    retries, now_s, waits = Retries(), 1000.0, list[float]()
    while (wait_s := retries.failed(now_s, 0.0)) >= 0.0:
        waits.append(wait_s)
        now_s += wait_s
    assert waits[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert max(waits) == LONGEST_WAIT_S
    assert GIVE_UP_S <= now_s - 1000.0 <= GIVE_UP_S + LONGEST_WAIT_S
    assert retries.failed(now_s, 12.0) == 12.0, "the collector has asked for it"
    assert retries.failed(now_s, 1e9) == LONGEST_WAIT_S
