"""Whole gateways that trace their requests: one complete trace for each, whatever dies; and none where traces are off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway.settings import TracesSettings
from messages.client import AsyncClient
from messages.generation.sequences import Work
from messages.run_dir import zeromq_endpoint
from tests.support.fresh_interpreter import run_script
from tests.support.gateway.fake_scheduler import FakeScheduler
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.gateway.journal_file import written
from tests.support.otlp.span_collector import SpanCollector, by_trace, span_collector
from tests.support.otlp.traces import SeenSpan, check_trace, request_of
from tests.support.waiting import until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=1"}
BODY = {"prompt": [1, 2], "max_tokens": 6, "temperature": 0}


@pytest.fixture
def collector() -> Iterator[SpanCollector]:
    with span_collector() as one:
        yield one


@asynccontextmanager
async def traced(folder: Path, collector: SpanCollector, **settings: Any) -> AsyncIterator[Rig]:
    """A gateway that exports to this collector, with a journal and without a scheduler."""
    traces = TracesSettings(folder=str(folder / "traces"), endpoint=collector.endpoint)
    async with rig(with_scheduler=False, traces=traces, journal_path=str(folder / "journal-0"), **settings) as r:
        yield r


async def spans_of(r: Rig, collector: SpanCollector, n_traces: int = 1) -> list[list[SeenSpan]]:
    """The spans of each trace, once so many are there and the gateway has exported all."""
    tracing = r.gateway.tracing
    assert tracing is not None
    await until(lambda: not r.manager.unfinished.all)
    tracing.spool.seal()
    await until(lambda: not tracing.spool.n_waiting)
    assert len(tracing.attempts) == 0, "what is noted of a request goes with it"
    traces = list(by_trace(collector.spans).values())
    assert len(traces) == n_traces
    for spans in traces:
        check_trace(spans)
    return traces


def named(spans: list[SeenSpan], name: str) -> list[SeenSpan]:
    return sorted((span for span in spans if span.name == name), key=lambda span: span.start_ns)


async def test_a_request_is_one_span_with_its_phases(tmp_path: Path, collector: SpanCollector) -> None:
    async with traced(tmp_path, collector) as r, r.http() as http:
        scheduler = await r.add_scheduler()
        scheduler.work = Work(queue_s=0.0001, prefill_s=0.0001, decode_s=0.0001)
        body = {**BODY, "temperature": 0.5, "top_p": 0.9, "seed": 3}
        answer = await http.post("/v1/completions", json=body, headers={**HEADERS, "x-request-id": "mine"})
        (spans,) = await spans_of(r, collector)
    request = request_of(spans)
    assert answer.headers["traceparent"] == f"00-{TRACE}-{request.span_id}-01"
    assert answer.headers["tracestate"] == "vendor=1"
    assert (request.trace_id, request.parent_id, request.state) == (TRACE, CALLER, "vendor=1")
    assert request.name == "text_completion hash-chain"
    assert {span.name for span in spans} == {request.name, "queue", "prefill", "decode"}
    about = request.attributes
    assert (about["gen_ai.usage.input_tokens"], about["gen_ai.usage.output_tokens"]) == (2, 6)
    assert about["gen_ai.response.finish_reasons"] == ["length"]
    assert (about["gen_ai.request.temperature"], about["gen_ai.request.top_p"]) == (0.5, 0.9)
    assert about["gen_ai.response.id"] == answer.json()["id"]
    assert (about["tardigrade.scheduler"], about["tardigrade.gateway"]) == ("scheduler/0", "gateway/0")
    assert about["tardigrade.x_request_id"] == "mine"
    assert "tardigrade.submissions" not in about


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/v1/generate"])
async def test_every_door_takes_a_trace_and_gives_it(tmp_path: Path, collector: SpanCollector, path: str) -> None:
    messages = [{"role": "user", "content": "a"}]
    body = {
        "/v1/responses": {"input": "a", "max_output_tokens": 16},
        "/v1/generate": {"tokens": [1], "max_tokens": 2},
        "/api/chat": {"model": "hash-chain", "messages": messages, "options": {"num_predict": 2}, "stream": True},
    }.get(path, {"model": "hash-chain", "messages": messages, "max_tokens": 2})
    async with traced(tmp_path, collector) as r, r.http() as http:
        await r.add_scheduler()
        answer = await http.post(path, json=body, headers=HEADERS)
        assert answer.status_code == 200, answer.text
        (spans,) = await spans_of(r, collector)
    assert answer.headers["traceparent"] == f"00-{TRACE}-{request_of(spans).span_id}-01"
    assert request_of(spans).attributes["gen_ai.operation.name"] == ("text_completion" if path == "/v1/generate" else "chat")


async def test_a_zeromq_client_brings_its_trace(tmp_path: Path, collector: SpanCollector) -> None:
    endpoint = zeromq_endpoint(tmp_path)
    async with traced(tmp_path, collector, zeromq_endpoint=endpoint) as r:
        await r.add_scheduler()
        async with AsyncClient(endpoint) as client:
            await client.generate([1, 2], max_tokens=3, traceparent=HEADERS["traceparent"], tracestate="vendor=1")
        (spans,) = await spans_of(r, collector)
    assert (request_of(spans).trace_id, request_of(spans).parent_id, request_of(spans).state) == (TRACE, CALLER, "vendor=1")


async def test_what_its_client_does_not_record_is_not_traced(tmp_path: Path, collector: SpanCollector) -> None:
    async with traced(tmp_path, collector) as r, r.http() as http:
        scheduler = await r.add_scheduler()
        answer = await http.post("/v1/completions", json=BODY, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
        assert "traceparent" not in answer.headers
        assert scheduler.submits[0].terms.trace_id.hex() == TRACE, "log lines have it all the same"
        await spans_of(r, collector, 0)


async def test_a_request_without_a_trace_begins_one_that_log_lines_have(tmp_path: Path, collector: SpanCollector) -> None:
    async with traced(tmp_path, collector) as r, r.http() as http:
        scheduler = await r.add_scheduler()
        await asyncio.gather(*(http.post("/v1/completions", json=BODY) for _ in range(2)))
        traces = await spans_of(r, collector, 2)
    assert {submit.terms.trace_id.hex() for submit in scheduler.submits} == {spans[0].trace_id for spans in traces}
    assert {request_of(spans).parent_id for spans in traces} == {""}


async def test_a_dead_scheduler_leaves_an_attempt_and_a_linked_resubmission(tmp_path: Path, collector: SpanCollector) -> None:
    async with traced(tmp_path, collector) as r, r.http() as http:
        first = await r.add_scheduler(is_automatic=False)
        asked = asyncio.ensure_future(http.post("/v1/completions", json=BODY, headers=HEADERS))
        await until(lambda: first.running)
        first.step(2)
        await until(lambda: first.acked == first.sent)
        await r.cluster.kill("scheduler/0")
        second = await r.add_scheduler(incarnation=2, is_automatic=False)
        second.work = Work(queue_s=0.0001, prefill_s=0.0001, decode_s=0.0001)
        await until(lambda: second.running)
        second.step(10)
        assert (await asked).status_code == 200
        (spans,) = await spans_of(r, collector)
    (lost,), (again,) = named(spans, "attempt"), named(spans, "resubmission")
    assert lost.attributes["tardigrade.loss.cause"] == "scheduler_died"
    assert (lost.attributes["tardigrade.tokens"], lost.attributes["tardigrade.scheduler"]) == (2, "scheduler/0")
    assert again.links == (lost.span_id,)
    assert request_of(spans).attributes["tardigrade.submissions"] == 2
    assert [span.parent_id for span in named(spans, "decode")] == [again.span_id]


async def finish_after_death(r: Rig, scheduler: FakeScheduler, body: dict[str, Any]) -> httpx.Response:
    """The answer of the second incarnation to the same request."""
    async with r.http() as http:
        asked = asyncio.ensure_future(http.post("/v1/generate", json=body))
        await until(lambda: scheduler.running or asked.done())
        scheduler.step(40)
        return await asked


RESUMABLE = {"tokens": [1, 2], "max_tokens": 8, "temperature": 0, "request_id": "mine"}


@pytest.mark.parametrize("error_s", [0.0, 60.0])
async def test_the_successor_of_a_dead_gateway_goes_on_with_the_trace(
    tmp_path: Path, collector: SpanCollector, error_s: float
) -> None:
    """error_s: so much too short is the age of the request, as the successor reads it."""
    async with traced(tmp_path, collector) as r:
        scheduler = await r.add_scheduler(is_automatic=False)
        async with r.http() as http:
            asked = asyncio.ensure_future(http.post("/v1/generate", json=RESUMABLE, headers=HEADERS))
            await until(lambda: scheduler.running)
            scheduler.step(3)
            await until(lambda: scheduler.acked == scheduler.sent)
            await written(r.gateway.journal)
            await r.kill_gateway()
            asked.cancel()
        scheduler.running.clear()
        await r.start_gateway(2)
        assert r.gateway.tracing is not None
        r.gateway.tracing.attempts.began_s -= error_s
        answer = await finish_after_death(r, scheduler, RESUMABLE)
        (spans,) = await spans_of(r, collector)
    request, (lost,), (again,) = request_of(spans), named(spans, "attempt"), named(spans, "resubmission")
    assert answer.headers["traceparent"] == f"00-{TRACE}-{request.span_id}-01"
    assert (request.trace_id, request.parent_id) == (TRACE, CALLER)
    assert lost.attributes["tardigrade.loss.cause"] == "gateway_died"
    assert again.links == (lost.span_id,)
    assert request.attributes["gen_ai.usage.output_tokens"] == 8


async def test_what_a_dead_gateway_had_not_exported_is_exported_once(tmp_path: Path, collector: SpanCollector) -> None:
    """The first incarnation is killed when its requests are over and their spans wait. One of them may be in the journal as
    unfinished, because nobody can ask for it again."""
    async with traced(tmp_path, collector) as r:
        await r.add_scheduler()
        assert r.gateway.tracing is not None
        r.gateway.tracing.spool.on_complete = lambda: None  # the collector is slow
        async with r.http() as http:
            await http.post("/v1/generate", json=RESUMABLE)
            await http.post("/v1/completions", json=BODY)
        await r.kill_gateway()
        assert not collector.spans
        await r.start_gateway(2)
        await r.add_scheduler(incarnation=2)
        async with r.http() as http:
            await http.post("/v1/completions", json=BODY)
        traces = await spans_of(r, collector, 3)
    assert [request_of(spans).attributes["tardigrade.ending"] for spans in traces] == ["length"] * 3
    assert len(collector.spans) == len({span.span_id for span in collector.spans})


async def test_a_full_spool_costs_traces_and_nothing_else(
    tmp_path: Path, collector: SpanCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    async with traced(tmp_path, collector) as r, r.http() as http:
        await r.add_scheduler()
        collector.statuses += [503] * 1000
        for _ in range(3):
            assert (await http.post("/v1/completions", json=BODY)).status_code == 200
        dropped = r.gateway.registry.get_sample_value("tardigrade_traces_dropped_total", {"why": "full"})
    assert dropped == 2


async def test_a_folder_that_cannot_be_written_costs_the_traces_alone(tmp_path: Path, collector: SpanCollector) -> None:
    (tmp_path / "traces").write_text("in the way")
    async with traced(tmp_path, collector) as r, r.http() as http:
        await r.add_scheduler()
        assert (await http.post("/v1/completions", json=BODY, headers=HEADERS)).status_code == 200
        assert r.gateway.tracing is None


async def test_where_traces_are_off_nothing_is_made(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path / "journal-0")) as r, r.http() as http:
        answer = await http.post("/v1/completions", json=BODY, headers=HEADERS)
        assert "traceparent" not in answer.headers
        request = r.scheduler().submits[0]
        assert request.terms.trace_id.hex() == TRACE
        assert r.gateway.tracing is None
        assert r.gateway.registry.get_sample_value("tardigrade_traces_exported_total") is None


def test_where_traces_are_off_nothing_is_imported() -> None:
    found = "[m for m in sys.modules if m.startswith(('actors.gateway.tracing.', 'opentelemetry'))]"
    assert run_script(f"import sys, actors.gateway.gateway_actor; print(*{found})") == "actors.gateway.tracing.begin"
