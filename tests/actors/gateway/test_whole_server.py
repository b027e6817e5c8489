"""Gateway, real scheduler and the real hash-chain engine in one loop: every token is the oracle's, whoever dies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.gateway import tree_status
from actors.gateway.gateway_actor import GatewayActor
from actors.scheduler.scheduler_actor import SchedulerActor
from actors.scheduler.settings import SchedulerSettings
from gpu_workers.settings import WorkerSettings
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.memory_cluster import Gang

WORKER = WorkerSettings(model_folder="hash-chain", n_slots=16, max_length=512, max_step_tokens=64, hash_chain_pages=128)
DEADLINE_S = 20.0
N = 12


async def start_scheduler(r: Rig, incarnation: int) -> None:
    """The next life of the scheduler, known to the gateway."""
    r.cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings(), incarnation)
    await r.cluster.wait_until(lambda: r.gateway.incarnation_of("scheduler/0") == incarnation)


@asynccontextmanager
async def whole_server(**settings: Any) -> AsyncIterator[tuple[Rig, Gang]]:
    async with rig(with_scheduler=False, max_length=512, **settings) as r:
        r.cluster.start(SchedulerActor, "scheduler/0", SchedulerSettings())
        gang = Gang(r.cluster, WORKER)
        r.cluster.introduce(gang)
        await r.cluster.wait_until(lambda: r.gateway.living("scheduler"))
        yield r, gang


def prompt(number: int) -> list[int]:
    return [(number * 31 + i) % 1000 for i in range(3 + number * 5)]


def ask(http: httpx.AsyncClient, number: int, max_tokens: int, **fields: object) -> asyncio.Task[httpx.Response]:
    body = {"prompt": prompt(number), "max_tokens": max_tokens, "temperature": 0, **fields}
    return asyncio.ensure_future(http.post("/v1/completions", json=body))


def streamed(answer: httpx.Response) -> str:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line.startswith("data: ")]
    return "".join(c["text"] for line in lines[:-1] for c in json.loads(line)["choices"])


async def finished(answers: list[asyncio.Task[httpx.Response]]) -> list[httpx.Response]:
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.gather(*answers)


def n_visible(gateway: GatewayActor) -> int:
    return int(gateway.metrics.output_tokens._value.get())


async def test_many_at_once_streamed_and_whole() -> None:
    async with whole_server() as (r, _), r.http() as http:
        answers = [ask(http, i, 20, stream=i % 2 == 0) for i in range(N)]
        for i, answer in enumerate(await finished(answers)):
            assert answer.status_code == 200, answer.text
            text = streamed(answer) if i % 2 == 0 else answer.json()["choices"][0]["text"]
            assert text == ids_text(oracle(prompt(i), 20))


async def test_a_scheduler_killed_in_the_middle_costs_no_token() -> None:
    async with whole_server() as (r, _), r.http() as http:
        answers = [ask(http, i, 60, stream=True) for i in range(N)]
        for life in (2, 3, 4):
            seen = n_visible(r.gateway)
            await r.cluster.wait_until(lambda seen=seen: n_visible(r.gateway) > seen + 40)
            await r.cluster.kill("scheduler/0")
            await start_scheduler(r, life)
        for i, answer in enumerate(await finished(answers)):
            assert streamed(answer) == ids_text(oracle(prompt(i), 60))


async def test_a_gang_killed_in_the_middle_costs_no_token() -> None:
    async with whole_server() as (r, _), r.http() as http:
        answers = [ask(http, i, 60) for i in range(N)]
        for life in (2, 3):
            seen = n_visible(r.gateway)
            await r.cluster.wait_until(lambda seen=seen: n_visible(r.gateway) > seen + 40)
            await r.cluster.kill("worker/0.0")
            r.cluster.introduce(Gang(r.cluster, WORKER, life))
        for i, answer in enumerate(await finished(answers)):
            assert answer.json()["choices"][0]["text"] == ids_text(oracle(prompt(i), 60))


async def test_a_killed_gateway_resumes_what_can_be_asked_for_again(tmp_path: Path) -> None:
    async with whole_server(journal_path=str(tmp_path / "journal")) as (r, gang):
        bodies = [{"tokens": prompt(i), "max_tokens": 60, "temperature": 0, "request_id": f"r{i}"} for i in range(N)]
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
        desk = r.gateway.desk
        assert desk is not None
        resumed = [desk.find(f"r{i}") for i in range(N)]
        assert sum(request.n_generated for request in resumed if request is not None) > 60, "known tokens stay known"
        async with r.http() as http:
            again = await finished([asyncio.ensure_future(http.post("/v1/generate", json=body)) for body in bodies])
        for i, answer in enumerate(again):
            assert answer.json()["tokens"] == oracle(prompt(i), 60)
        await r.cluster.wait_until(lambda: desk.n_active == 0)


async def test_a_client_that_leaves_is_cancelled_at_the_scheduler() -> None:
    async with whole_server(with_socket=True) as (r, gang):
        gang.hold()
        reader, writer = await asyncio.open_connection(*r.address)
        body = json.dumps({"prompt": [1, 2], "max_tokens": 400, "stream": True}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        async with asyncio.timeout(DEADLINE_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        desk = r.gateway.desk
        assert desk is not None
        assert desk.n_active == 1
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            while desk.n_active:
                await asyncio.sleep(0.001)
        gang.release_held()
        scheduler, _ = r.cluster.actors["scheduler/0"]
        assert isinstance(scheduler, SchedulerActor)
        await r.cluster.wait_until(lambda: not len(scheduler._queues))


async def test_metrics_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_status, "_WAIT_S", 0.01)  # this cluster's supervisor does not report
    async with whole_server() as (r, _), r.http() as http:
        await finished([ask(http, i, 8) for i in range(3)])
        text = (await http.get("/metrics")).text
        samples = {line.split(" ")[0].split("{")[0]: float(line.split(" ")[-1]) for line in text.splitlines() if line[0] != "#"}
        assert samples["tardigrade_output_tokens_total"] == 24
        assert samples["tardigrade_time_to_first_token_seconds_count"] == 3
        assert samples["tardigrade_active_sequences"] == 0
        summary = (await http.get("/v1/metrics")).json()
        assert summary["request"]["count"] == 3
        assert summary["inter_token"]["count"] == 21
