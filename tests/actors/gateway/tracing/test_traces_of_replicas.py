"""Traces while gangs die: what waited for new ranks, what another replica went on with, and requests of several sequences."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from actors.gateway.settings import TracesSettings
from tests.support.gateway.replicas_rig import TwoReplicas, two_replicas
from tests.support.otlp.span_collector import by_trace, span_collector
from tests.support.otlp.traces import SeenSpan, check_trace, request_of
from tests.support.waiting import until

N_TOKENS = 60


@asynccontextmanager
async def traced_replicas(folder: Path) -> AsyncIterator[tuple[TwoReplicas, list[list[SeenSpan]]]]:
    """Two replicas. The spans of all traces stand in the list at the end, one trace after the other."""
    with span_collector() as collector:
        traces = TracesSettings(folder=str(folder / "traces"), endpoint=collector.endpoint)
        found: list[list[SeenSpan]] = []
        async with two_replicas(traces=traces) as both:
            yield both, found
            tracing = both.rig.gateway.tracing
            assert tracing is not None
            tracing.spool.seal()
            await until(lambda: not tracing.spool.n_waiting)
        found += by_trace(collector.spans).values()
    for spans in found:
        check_trace(spans)


async def test_a_gang_that_comes_back_is_a_span_and_one_that_stays_away_a_resubmission(tmp_path: Path) -> None:
    async with traced_replicas(tmp_path) as (both, traces), both.rig.http() as http:
        body = {"max_tokens": N_TOKENS, "temperature": 0}
        asked = [asyncio.ensure_future(http.post("/v1/generate", json={**body, "tokens": [i, 7]})) for i in range(1, 13)]
        await both.rig.cluster.wait_until(lambda: both.n_at(0) > 2 and both.n_at(1) > 2)
        await both.rig.cluster.wait_until(lambda: all(both.gang(r).plans for r in (0, 1)))
        n_lost = both.n_at(0)
        both.fates[0].returns.clear()
        both.gang(0).die("killed")
        await both.rig.cluster.wait_until(lambda: both.n_at(0) == 0)
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 12
        both.fates[0].returns.set()
    assert len(traces) == 12
    again = [spans for spans in traces if any(span.name == "resubmission" for span in spans)]
    assert 0 < len(again) <= n_lost
    for spans in again:
        (recovery,) = [span for span in spans if span.name == "gang recovery"]
        (lost,) = [span for span in spans if span.name == "attempt"]
        assert lost.attributes["tardigrade.loss.cause"] == "gang_died"
        assert lost.attributes["tardigrade.scheduler"] == recovery.attributes["tardigrade.scheduler"] == "scheduler/0"
        assert request_of(spans).attributes["tardigrade.scheduler"] == "scheduler/1"


async def test_a_request_of_several_sequences_has_one_span_and_the_longest_phases(tmp_path: Path) -> None:
    async with traced_replicas(tmp_path) as (both, traces), both.rig.http() as http:
        body = {"prompt": [[1, 2], [3, 4]], "n": 2, "max_tokens": N_TOKENS, "seed": 1}
        asked = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await both.rig.cluster.wait_until(lambda: both.n_at(0) + both.n_at(1) == 4)
        await both.rig.cluster.kill("scheduler/0")
        assert (await asked).status_code == 200
        both.fates[0].returns.set()
    (spans,) = traces
    request = request_of(spans)
    assert request.attributes["gen_ai.request.choice.count"] == 2
    assert request.attributes["gen_ai.response.finish_reasons"] == ["length"] * 4
    assert request.attributes["gen_ai.usage.output_tokens"] == 4 * N_TOKENS
