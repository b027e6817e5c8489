"""Gateway, real scheduler and the real hash-chain engine in one loop: every token is the oracle's, whoever dies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from actors.gateway import tree_status
from actors.scheduler.scheduler_actor import SchedulerActor
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.whole_server import (
    WORKER,
    ask,
    n_visible,
    prompt_number,
    start_scheduler,
    streamed_text,
    wait_all,
    whole_server,
)
from tests.support.memory_cluster import Gang
from tests.support.waiting import DEADLINE_S

N = 12


async def test_many_at_once_streamed_and_whole() -> None:
    async with whole_server() as (r, _), r.http() as http:
        answers = [ask(http, i, 20, stream=i % 2 == 0) for i in range(N)]
        for i, answer in enumerate(await wait_all(answers)):
            assert answer.status_code == 200, answer.text
            text = streamed_text(answer) if i % 2 == 0 else answer.json()["choices"][0]["text"]
            assert text == ids_text(oracle(prompt_number(i), 20))


async def test_a_scheduler_killed_in_the_middle_costs_no_token() -> None:
    async with whole_server() as (r, _), r.http() as http:
        answers = [ask(http, i, 60, stream=True) for i in range(N)]
        for life in (2, 3, 4):
            seen = n_visible(r.gateway)
            await r.cluster.wait_until(lambda seen=seen: n_visible(r.gateway) > seen + 40)
            await r.cluster.kill("scheduler/0")
            await start_scheduler(r, life)
        for i, answer in enumerate(await wait_all(answers)):
            assert streamed_text(answer) == ids_text(oracle(prompt_number(i), 60))


async def test_a_gang_killed_in_the_middle_costs_no_token() -> None:
    async with whole_server() as (r, _), r.http() as http:
        answers = [ask(http, i, 60) for i in range(N)]
        for life in (2, 3):
            seen = n_visible(r.gateway)
            await r.cluster.wait_until(lambda seen=seen: n_visible(r.gateway) > seen + 40)
            await r.cluster.kill("worker/0.0")
            r.cluster.introduce(Gang(r.cluster, WORKER, life))
        for i, answer in enumerate(await wait_all(answers)):
            assert answer.json()["choices"][0]["text"] == ids_text(oracle(prompt_number(i), 60))


async def test_a_killed_gateway_resumes_what_can_be_asked_for_again(tmp_path: Path) -> None:
    async with whole_server(journal_path=str(tmp_path / "journal")) as (r, gang):
        bodies = [{"tokens": prompt_number(i), "max_tokens": 60, "temperature": 0, "request_id": f"r{i}"} for i in range(N)]
        async with r.http() as http:
            lost = [asyncio.ensure_future(http.post("/v1/generate", json=body)) for body in bodies]
            lost.append(ask(http, 1, 60))
            await r.cluster.wait_until(lambda: n_visible(r.gateway) > 60)
            gang.hold()
            await r.kill_gateway()
            for task in lost:
                task.cancel()
            await asyncio.gather(*lost, return_exceptions=True)
        await r.start_gateway(2)
        gang.release_held()
        manager = r.gateway.manager
        resumed = [manager.find(f"r{i}") for i in range(N)]
        assert sum(request.n_generated for request in resumed if request is not None) > 60, "known tokens stay known"
        async with r.http() as http:
            again = await wait_all([asyncio.ensure_future(http.post("/v1/generate", json=body)) for body in bodies])
        for i, answer in enumerate(again):
            assert answer.json()["tokens"] == oracle(prompt_number(i), 60)
        await r.cluster.wait_until(lambda: manager.gate.n_active == 0)


async def test_a_client_that_leaves_is_cancelled_at_the_scheduler() -> None:
    async with whole_server(with_socket=True) as (r, gang):
        gang.hold()
        reader, writer = await asyncio.open_connection(*r.address)
        body = json.dumps({"prompt": [1, 2], "max_tokens": 400, "stream": True}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        async with asyncio.timeout(DEADLINE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        manager = r.gateway.manager
        assert manager.gate.n_active == 1
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            while manager.gate.n_active:
                await asyncio.sleep(0.001)
        gang.release_held()
        scheduler, _ = r.cluster.actors["scheduler/0"]
        assert isinstance(scheduler, SchedulerActor)
        await r.cluster.wait_until(lambda: not len(scheduler._queues))


async def test_metrics_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_status, "_WAIT_S", 0.01)  # this cluster's supervisor does not report
    async with whole_server() as (r, _), r.http() as http:
        await wait_all([ask(http, i, 8) for i in range(3)])
        text = (await http.get("/metrics")).text
        samples = {line.split(" ")[0].split("{")[0]: float(line.split(" ")[-1]) for line in text.splitlines() if line[0] != "#"}
        assert samples["tardigrade_output_tokens_total"] == 24
        assert samples["tardigrade_time_to_first_token_seconds_count"] == 3
        assert samples["tardigrade_active_sequences"] == 0
        summary = (await http.get("/v1/metrics")).json()
        assert summary["total_requests"] == summary["request"]["count"] > 0
        assert summary["total_tokens_generated"] > 0
        assert summary["avg_latency_ms"] == summary["request"]["mean_ms"]
        assert summary["avg_throughput"] > 0
        assert summary["gateway"] == "gateway/0", "the latencies are those of one gateway"
        assert summary["request"]["count"] == 3
        assert summary["inter_token"]["count"] == 21
