"""A thousand requests while workers, schedulers and gateways are killed, and calls for vectors and refused ones while the
embedder is: each has exactly one complete trace."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import httpx
import pytest

from messages.client import AsyncClient
from tests.support.embedding.embedders import packaged_folder
from tests.support.otlp.span_collector import by_trace, span_collector
from tests.support.otlp.traces import SeenSpan, check_trace, request_of
from tests.support.real_server import WITH_SPARES, RealServer, real_server
from tests.support.workers.pulse import PULSE

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
N_REQUESTS, N_AT_ONCE, N_TOKENS = 1_000, 40, 60
ROLES = ("worker/0.0", "scheduler/0", "gateway/0")
FLAGS = ("--model", "hash-chain", "--set", "worker.hash_chain_step_s=0.01")
AGAIN = (429, 503)


class Load:
    """The requests, half of them over ZeroMQ and half over HTTP, each with a trace of its own. `n_done`: answered in full."""

    def __init__(self, server: RealServer, http: httpx.AsyncClient, client: AsyncClient) -> None:
        self._server, self._http, self._client = server, http, client
        self._numbers = iter(range(N_REQUESTS))
        self.n_done = 0

    async def run(self) -> None:
        """Ask all of them."""
        async with PULSE.beating(), asyncio.TaskGroup() as group:
            for _ in range(N_AT_ONCE):
                group.create_task(self._some())

    async def _some(self) -> None:
        for number in self._numbers:
            n_tokens = await (self._over_http if number % 2 else self._over_zeromq)(number)
            assert n_tokens == N_TOKENS
            self.n_done += 1

    async def _over_zeromq(self, number: int) -> int:
        options = {"max_tokens": N_TOKENS, "temperature": 0.0, "deadline_s": 300.0}
        answer = await self._client.generate([number, 1], traceparent=traceparent(number), **options)
        return len(answer.tokens)

    async def _over_http(self, number: int) -> int:
        """A whole answer; asked for again by its key if its connection breaks, or there is no gateway just now."""
        body = {"prompt": [number, 1], "max_tokens": N_TOKENS, "temperature": 0}
        headers = {"traceparent": traceparent(number), "idempotency-key": f"key-{number}"}
        while True:
            try:
                answer = await self._http.post("/v1/completions", json=body, headers=headers)
            except httpx.TransportError:
                continue
            if answer.status_code not in AGAIN:
                assert answer.status_code == 200, answer.text
                return int(answer.json()["usage"]["completion_tokens"])


def traceparent(number: int) -> str:
    return f"00-{number + 1:032x}-{number + 1:016x}-01"


async def kill_all_the_time(server: RealServer, load: Load, kills: Counter[str]) -> None:
    """Kill one process after the other at random moments, each when the whole server is back."""
    dice, hit = random.Random(1), dict[str, int]()
    while load.n_done < N_REQUESTS - N_AT_ONCE:
        name, n_done = dice.choice(ROLES), load.n_done
        hit[name] = await asyncio.to_thread(server.kill, name, after=hit.get(name, 0))
        kills[name] += 1
        await asyncio.to_thread(server.wait_new_incarnation, name, hit[name])
        await asyncio.to_thread(server.wait_serving)
        while load.n_done < min(n_done + dice.randrange(5, 30), N_REQUESTS - N_AT_ONCE):
            await asyncio.sleep(0.005)


async def ask_and_kill(server: RealServer, kills: Counter[str]) -> None:
    limits = httpx.Limits(max_connections=N_AT_ONCE)
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=300.0, limits=limits) as http,
        AsyncClient(server.zeromq) as client,
    ):
        load = Load(server, http, client)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            group.create_task(kill_all_the_time(server, load, kills))


def accepted(spans: list[SeenSpan]) -> dict[str, list[SeenSpan]]:
    """The spans of accepted requests by trace: one that a gateway had refused before it was accepted has a span of that too."""
    return by_trace([span for span in spans if not span.name.startswith("refused ")])


def test_each_of_a_thousand_requests_has_one_complete_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = Counter[str]()
    with span_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "under-kills")
        with real_server(*WITH_SPARES, *FLAGS) as server:
            asyncio.run(ask_and_kill(server, kills))
            collector.wait(lambda: len(accepted(collector.spans)) == N_REQUESTS)
            assert server.stop() == 0
    traces = accepted(collector.spans)
    assert {int(trace, 16) for trace in traces} == set(range(1, N_REQUESTS + 1))
    for trace, spans in traces.items():
        check_trace(spans)
        assert request_of(spans).parent_id == trace[-16:]
        assert request_of(spans).attributes["gen_ai.usage.output_tokens"] == N_TOKENS
    refused = [span for span in collector.spans if span.name.startswith("refused ")]
    assert all(span.parent_id == span.trace_id[-16:] for span in refused)
    causes = Counter(s.attributes["tardigrade.loss.cause"] for own in traces.values() for s in own if s.is_error)
    n_recoveries = sum(span.name == "gang recovery" for own in traces.values() for span in own)
    n_twice = len(collector.spans) - len(refused) - sum(map(len, traces.values()))
    print(f"kills {dict(kills)}, causes {dict(causes)}, gang recoveries {n_recoveries}, spans that came twice {n_twice}")
    print(f"refused before they were accepted {len(refused)}")
    assert set(kills) == set(ROLES)
    assert min(causes["scheduler_died"], causes["gateway_died"], n_recoveries) > 0


N_CALLS, N_EMBEDDER_DEATHS = 300, 3
EMBEDDER = "embedder/0"
CALLS = (  # what is asked by turns, its status, and the name of its span
    ("/v1/embeddings", {"input": ["water bear", "moss"]}, 200, "embeddings all-MiniLM-L6-v2"),
    ("/v1/completions", {"prompt": [1], "max_tokens": -1}, 400, "refused /v1/completions"),
    ("/v1/completions", {"prompt": [1], "max_tokens": 2}, 200, "text_completion hash-chain"),
)


async def ask_everything(server: RealServer) -> None:
    """All calls, while the embedder is killed."""
    async with httpx.AsyncClient(base_url=server.url, timeout=300.0, limits=httpx.Limits(max_connections=8)) as http:
        n_done = 0

        async def some(numbers: list[int]) -> None:
            nonlocal n_done
            for number in numbers:
                path, body, status, _ = CALLS[number % 3]
                answer = await http.post(path, json=body, headers={"traceparent": traceparent(number)})
                assert answer.status_code == status, answer.text
                assert answer.headers["traceparent"].startswith(traceparent(number)[:36])
                n_done += 1

        async def kill_embedders() -> None:
            hit = 0
            for death in range(1, N_EMBEDDER_DEATHS + 1):
                while n_done < death * N_CALLS // 5:
                    await asyncio.sleep(0.005)
                hit = await asyncio.to_thread(server.kill, EMBEDDER, after=hit)

        async with PULSE.beating(), asyncio.TaskGroup() as group:
            group.create_task(kill_embedders())
            for first in range(8):
                group.create_task(some(list(range(first, N_CALLS, 8))))


def test_refused_calls_and_calls_for_vectors_have_one_trace_each(monkeypatch: pytest.MonkeyPatch) -> None:
    packaged_folder()
    with span_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        with real_server("--model", "hash-chain", "--embedding-model", "minilm") as server:
            asyncio.run(ask_everything(server))
            collector.wait(lambda: len(by_trace(collector.spans)) == N_CALLS)
            assert server.stop() == 0
    traces = by_trace(collector.spans)
    for number in range(N_CALLS):
        spans = traces[traceparent(number)[3:35]]
        whole, (_, _, status, name) = request_of(spans), CALLS[number % 3]
        assert (whole.name, whole.is_error) == (name, status == 400)
        inner = sorted(span.name for span in spans if span is not whole)
        assert inner == {0: ["compute", "queue"], 1: [], 2: ["decode", "prefill", "queue"]}[number % 3]
    resent = [s for s in collector.spans if s.attributes.get("tardigrade.submissions", 1) > 1]
    print(f"{N_CALLS} calls, {N_EMBEDDER_DEATHS} deaths of the embedder, calls for vectors that were sent again {len(resent)}")
