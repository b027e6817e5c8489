"""Traces of calls that never become requests in the journal: refused ones, and embeddings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.settings import TracesSettings
from actors.gateway.tracing.ended_call import (
    EmbeddingsCall,
    EndedCall,
    RefusedCall,
    call_spans,
    decode_call,
    encode_call,
    is_call,
)
from actors.gateway.tracing.ended_request import encode_ended
from messages.client import AsyncClient
from messages.errors import ClientError
from messages.run_dir import zeromq_endpoint
from messages.wire.trace_context import TraceContext
from tests.support.embedding.embedders import HeldEmbedder, add_embedder, gateway_fields
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.otlp.ended_requests import BEGAN_S, PARENT, SPAN, ended
from tests.support.otlp.span_collector import SpanCollector, span_collector
from tests.support.otlp.traces import SeenSpan, request_of, seen_of
from tests.support.waiting import until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}


def fields_of(folder: Path, collector: SpanCollector, **settings: Any) -> dict[str, Any]:
    traces = TracesSettings(folder=str(folder / "traces"), endpoint=collector.endpoint)
    return {"traces": traces, "journal_path": str(folder / "journal-0"), **settings}


async def spans_of(r: Rig, collector: SpanCollector) -> list[SeenSpan]:
    """All spans that the gateway had to export."""
    tracing = r.gateway.tracing
    assert tracing is not None
    tracing.spool.seal()
    await until(lambda: not tracing.spool.n_waiting)
    return collector.spans


def call(what: RefusedCall | EmbeddingsCall) -> EndedCall:
    context = TraceContext(parent_id=PARENT, is_sampled=True, state="a=b", span_id=SPAN)
    return EndedCall(b"\x4b" * 16, context, BEGAN_S, BEGAN_S + 2.0, "gateway/0", "r", "mine", "acme", what)


def test_a_record_of_a_call_is_told_from_that_of_a_request() -> None:
    one = call(RefusedCall("/v1/completions", 429, "queue_full", "queue_tokens=8"))
    assert is_call(encode_call(one))
    assert decode_call(encode_call(one)) == one
    assert not is_call(encode_ended(ended()))


def test_the_phases_of_embeddings_fill_the_call() -> None:
    what = EmbeddingsCall("minilm", "embeddings", 2, 9, BEGAN_S + 0.5, 1)
    whole, queue, compute = map(seen_of, call_spans(call(what)))
    assert (whole.parent_id, whole.span_id, whole.state) == (PARENT.hex(), SPAN.hex(), "a=b")
    assert (queue.name, queue.start_ns, queue.end_ns) == ("queue", whole.start_ns, compute.start_ns)
    assert (compute.name, compute.end_ns - compute.start_ns, compute.end_ns) == ("compute", 1_500_000_000, whole.end_ns)
    assert {queue.parent_id, compute.parent_id} == {whole.span_id}
    assert len({whole.span_id, queue.span_id, compute.span_id}) == 3
    assert (whole.attributes["tardigrade.texts"], whole.attributes["gen_ai.usage.input_tokens"]) == (2, 9)


def test_embeddings_that_were_never_sent_waited_all_the_time() -> None:
    whole, queue = map(seen_of, call_spans(call(EmbeddingsCall("minilm", "embeddings", 1, 0, 0.0, 0))))
    assert (queue.start_ns, queue.end_ns) == (whole.start_ns, whole.end_ns)
    assert whole.attributes["tardigrade.ending"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "limit", "field"),
    [
        ("/v1/completions", {"prompt": [1], "max_tokens": -1}, 400, "invalid", "", "max_tokens"),
        ("/v1/completions", {"prompt": [1] * 600, "max_tokens": 1}, 400, "too_long", "context_tokens=512", "prompt"),
        ("/v1/completions", {"prompt": [1], "model": "other"}, 404, "model_not_found", "", "model"),
        ("/v1/generate", {"prompt": "x" * 3000}, 413, "too_large", "max_body_bytes=2000", ""),
        ("/v1/embeddings", {"input": "a"}, 404, "not_found", "", ""),
        ("/v1/nowhere", {}, 404, "not_found", "", ""),
    ],
)
async def test_a_refused_call_is_a_span_with_its_code_and_its_limit(
    tmp_path: Path, path: str, body: dict[str, Any], status: int, code: str, limit: str, field: str
) -> None:
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector, max_length=512, max_body_bytes=2000)) as r, r.http() as http:
            answer = await http.post(path, json=body, headers={**HEADERS, "x-request-id": "mine"})
            (span,) = await spans_of(r, collector)
    assert answer.status_code == status, answer.text
    assert answer.headers["traceparent"] == f"00-{TRACE}-{span.span_id}-01"
    assert answer.headers["tracestate"] == "vendor=1"
    assert (span.trace_id, span.parent_id, span.name, span.is_error) == (TRACE, CALLER, f"refused {path}", True)
    about = span.attributes
    assert (about["error.type"], about["http.response.status_code"]) == (code, status)
    assert (about.get("tardigrade.refusal.limit", ""), about.get("tardigrade.refusal.field", "")) == (limit, field)
    assert about.get("tardigrade.x_request_id", "mine") == "mine"
    assert span.end_ns > span.start_ns
    assert not any("xxx" in str(value) for value in about.values()), "nothing of a prompt"


async def test_a_request_beyond_the_limit_of_all_tells_it(tmp_path: Path) -> None:
    with span_collector() as collector:
        async with rig(with_scheduler=False, **fields_of(tmp_path, collector, max_active_requests=1)) as r, r.http() as http:
            scheduler = await r.add_scheduler(is_automatic=False)
            first = asyncio.ensure_future(http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1}))
            await until(lambda: scheduler.running)
            second = await http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1})
            assert second.status_code == 429
            scheduler.step(1)
            assert (await first).status_code == 200
            await until(lambda: not r.manager.unfinished.all)
            spans = await spans_of(r, collector)
    (refused,) = [span for span in spans if span.is_error]
    assert refused.attributes["tardigrade.refusal.limit"] == "max_active_requests=1"
    assert refused.parent_id == ""


async def test_a_refused_call_of_zeromq_belongs_to_the_trace_of_its_client(tmp_path: Path) -> None:
    endpoint = zeromq_endpoint(tmp_path)
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector, zeromq_endpoint=endpoint, max_length=16)) as r:
            async with AsyncClient(endpoint) as client:
                with pytest.raises(ClientError):
                    await client.generate([1] * 17, max_tokens=1, traceparent=HEADERS["traceparent"])
            (span,) = await spans_of(r, collector)
    assert (span.trace_id, span.parent_id, span.name) == (TRACE, CALLER, "refused zeromq")
    assert span.attributes["error.type"] == "too_long"


async def test_what_the_client_does_not_record_has_no_span_when_it_is_refused(tmp_path: Path) -> None:
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector)) as r, r.http() as http:
            answer = await http.post("/v1/completions", json={}, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
            assert "traceparent" not in answer.headers
            assert not await spans_of(r, collector)


async def test_a_flood_of_refusals_leaves_half_of_the_room_to_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")  # four requests
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector)) as r, r.http() as http:
            collector.statuses += [503] * 1000
            for _ in range(6):
                await http.post("/v1/completions", json={})
            assert (await http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1})).status_code == 200
            await until(lambda: not r.manager.unfinished.all)
            tracing = r.gateway.tracing
            assert tracing is not None
            assert tracing.spool.n_waiting == 3
            assert r.gateway.registry.get_sample_value("tardigrade_traces_dropped_total", {"why": "full"}) == 4


async def test_a_request_that_cannot_be_recorded_keeps_the_trace_that_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector)) as r, r.http() as http:
            journal = r.gateway.journal
            monkeypatch.setattr(journal, "admission", lambda number, record, done, refused: refused())
            answer = await http.post("/v1/completions", json={"prompt": [1], "max_tokens": 1}, headers=HEADERS)
            monkeypatch.undo()
            assert answer.status_code == 503, answer.text
            (span,) = await spans_of(r, collector)
    assert (span.trace_id, span.parent_id, span.is_error) == (TRACE, CALLER, True)
    assert span.attributes["error.type"] == "journal_unavailable"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["hello", "hello"]}),
        ("/api/embed", {"input": ["hello", "hello"]}),
        ("/api/embeddings", {"prompt": "hello"}),
    ],
)
async def test_a_call_for_vectors_is_one_trace_with_queue_and_compute(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector, **gateway_fields())) as r, r.http() as http:
            await add_embedder(r)
            answer = await http.post(path, json={"model": "minilm", **body}, headers=HEADERS)
            assert answer.status_code == 200, answer.text
            spans = await spans_of(r, collector)
    whole = request_of(spans)
    assert answer.headers["traceparent"] == f"00-{TRACE}-{whole.span_id}-01"
    assert (whole.trace_id, whole.parent_id, whole.name, whole.is_error) == (TRACE, CALLER, "embeddings minilm", False)
    assert [span.name for span in spans] == ["embeddings minilm", "queue", "compute"]
    n_texts = 1 if "prompt" in body else 2
    assert (whole.attributes["tardigrade.texts"], whole.attributes["gen_ai.usage.input_tokens"]) == (n_texts, 3 * n_texts)
    assert whole.attributes["tardigrade.request.id"] == answer.headers["x-request-id"]


async def test_a_call_for_vectors_outlives_the_embedder_in_one_trace(tmp_path: Path) -> None:
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector, **gateway_fields())) as r, r.http() as http:
            held = HeldEmbedder(r.cluster)
            r.cluster.introduce(held)
            asked = asyncio.ensure_future(http.post("/v1/embeddings", json={"input": "hello"}))
            await until(lambda: bool(held.held))
            await r.cluster.kill("embedder/0")
            await add_embedder(r, 2)
            assert (await asked).status_code == 200
            spans = await spans_of(r, collector)
    assert request_of(spans).attributes["tardigrade.submissions"] == 2
    assert len(spans) == 3


async def test_a_client_that_leaves_its_call_for_vectors_ends_the_trace(tmp_path: Path) -> None:
    with span_collector() as collector:
        async with rig(**fields_of(tmp_path, collector, **gateway_fields())) as r, r.http() as http:
            held = HeldEmbedder(r.cluster)
            r.cluster.introduce(held)
            asked = asyncio.ensure_future(http.post("/v1/embeddings", json={"input": "hello"}))
            await until(lambda: bool(held.held))
            asked.cancel()
            tracing = r.gateway.tracing
            assert tracing is not None
            await until(lambda: tracing.spool.n_waiting == 1)
            spans = await spans_of(r, collector)
    assert request_of(spans).attributes["tardigrade.ending"] == "cancelled"
    assert [span.name for span in spans] == ["embeddings minilm", "queue", "compute"]


async def test_where_traces_are_off_calls_have_none(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path / "journal-0"), **gateway_fields()) as r, r.http() as http:
        await add_embedder(r)
        for path, body in (("/v1/embeddings", {"input": "hello"}), ("/v1/completions", {})):
            assert "traceparent" not in (await http.post(path, json=body, headers=HEADERS)).headers
        assert r.manager.refusals.trace is None
