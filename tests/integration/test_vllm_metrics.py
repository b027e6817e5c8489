"""vLLM's metrics and the access log of a real server count what clients have sent and got, over hundreds of requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.real_server import RealServer, real_server

pytestmark = pytest.mark.slow

_AT_A_TIME = 20
_MANY_PAGES = 4096
_REASON = {"stop": "stop", "length": "length", "cancelled": "abort"}


def prompt_of(number: int) -> list[int]:
    return [1 + number % 500, *range(2, 3 + number % 40)]


async def ask(client: httpx.AsyncClient, number: int) -> int:
    """A request of one of the kinds that users send; each tenth leaves in the middle of its stream. Returns how many tokens
    came; 0 for one that left."""
    prompt = prompt_of(number)
    body: dict[str, Any] = {"max_tokens": 1 + number % 9}
    if number % 10:
        answer = await client.post("/v1/generate", json={"tokens": prompt, **body})
        assert answer.status_code == 200
        return len(answer.json()["tokens"])
    body = {"prompt": prompt, "max_tokens": 4000, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        async for _ in answer.aiter_lines():
            break
    return 0


async def ask_all(url: str, n_requests: int) -> int:
    """All requests; returns how many tokens came in those that were read to their end."""
    numbers = iter(range(n_requests))
    async with httpx.AsyncClient(base_url=url, timeout=120.0) as client:

        async def go_on() -> int:
            return sum([await ask(client, number) for number in numbers])

        return sum(await asyncio.gather(*(go_on() for _ in range(_AT_A_TIME))))


def logged(server: RealServer) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == "request"]


def told(server: RealServer) -> defaultdict[str, float]:
    """vLLM's samples by name, and those of endings by reason, all actors together."""
    found: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text):
        for sample in family.samples:
            if sample.name.startswith("vllm:") and "le" not in sample.labels:
                found[sample.name.removeprefix("vllm:") + sample.labels.get("finished_reason", "")] += sample.value
    return found


@pytest.mark.parametrize("n_requests", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_the_counts_are_those_of_the_access_log_and_of_the_clients(n_requests: int) -> None:
    with real_server("--model", "hash-chain", "--log-format", "json", "--log-level", "info") as server:
        n_came = asyncio.run(ask_all(server.url, n_requests))
        server.wait_for(lambda report: len(logged(server)) == n_requests)
        lines = logged(server)
        # the scheduler's own counts come with its next beat
        n_prompt = sum(line["prompt_tokens"] for line in lines)
        assert n_prompt == sum(len(prompt_of(number)) for number in range(n_requests))
        assert n_came == sum(line["output_tokens"] for line in lines if line["ending"] != "cancelled")
        n_left = n_requests // 10
        assert Counter(line["ending"] == "cancelled" for line in lines) == {True: n_left, False: n_requests - n_left}
        server.wait_for(lambda report: told(server)["prefix_cache_queries_total"] == n_prompt)
        server.wait_for(lambda report: told(server)["num_requests_running"] == 0)  # those that left may end one beat later
        counts = told(server)
        for ending, n in Counter(line["ending"] for line in lines).items():
            assert counts[f"request_success_total{_REASON[ending]}"] == n
        n_output = sum(line["output_tokens"] for line in lines)
        assert (counts["prompt_tokens_total"], counts["generation_tokens_total"]) == (n_prompt, n_output)
        assert (counts["request_prompt_tokens_sum"], counts["request_generation_tokens_sum"]) == (n_prompt, n_output)
        assert counts["e2e_request_latency_seconds_count"] == counts["request_prompt_tokens_count"] == n_requests
        assert counts["time_to_first_token_seconds_count"] == sum(line["first_token_ms"] is not None for line in lines)
        for phase in ("queue", "prefill", "decode"):
            times_ms = [line[f"{phase}_ms"] for line in lines if line[f"{phase}_ms"] is not None]
            assert counts[f"request_{phase}_time_seconds_count"] == len(times_ms)
            assert counts[f"request_{phase}_time_seconds_sum"] == pytest.approx(sum(times_ms) / 1e3, abs=1e-3)
        computed_ms = [line["prefill_ms"] + line["decode_ms"] for line in lines if line["decode_ms"] is not None]
        assert counts["request_inference_time_seconds_count"] == len(computed_ms)
        assert counts["request_inference_time_seconds_sum"] == pytest.approx(sum(computed_ms) / 1e3, abs=1e-3)
        assert counts["num_requests_running"] == counts["num_requests_waiting"] == counts["kv_cache_usage_perc"] == 0


def repeating(number: int) -> list[int]:
    """Prompts of two tokens that begin alike, or are equal."""
    return [n % 2 for n in range(64)] if number % 3 == 0 else [(number * n + n // 7) % 2 for n in range(20 + number % 60)]


async def usages_of(url: str, n_requests: int) -> list[dict[str, Any]]:
    """What the answers say of their tokens. All are read to their end, which is a number of tokens."""
    numbers, usages = iter(range(n_requests)), list[dict[str, Any]]()
    async with httpx.AsyncClient(base_url=url, timeout=120.0) as client:

        async def go_on() -> None:
            for number in numbers:
                body = {"prompt": repeating(number), "max_tokens": 1 + 37 * number % 100, "temperature": 0}
                answer = await client.post("/v1/completions", json=body)
                assert answer.status_code == 200, answer.text
                usages.append(answer.json()["usage"])

        await asyncio.gather(*(go_on() for _ in range(_AT_A_TIME)))
    return usages


def details(usages: list[dict[str, Any]], of: str, name: str) -> int:
    return sum(one.get(f"{of}_tokens_details", {}).get(name, 0) for one in usages)


@pytest.mark.parametrize("pages", [_MANY_PAGES, 20])
@pytest.mark.parametrize("n_requests", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_caches_drafts_and_steps_are_those_that_answers_tell(n_requests: int, pages: int) -> None:
    """The answers of a vocabulary of two tokens repeat themselves, so there are drafts, some of them right. With few pages
    sequences are preempted, and their prompts count once all the same."""
    flags = ("--log-format", "json", "--log-level", "info", "--max-length", "256", "--set", "worker.hash_chain_vocabulary=2")
    with real_server("--model", "hash-chain", *flags, "--set", f"worker.hash_chain_pages={pages}") as server:
        usages = asyncio.run(usages_of(server.url, n_requests))
        server.wait_for(lambda report: len(logged(server)) == n_requests)
        n_prompt, n_output = (sum(one[f"{name}_tokens"] for one in usages) for name in ("prompt", "completion"))
        n_cached = details(usages, "prompt", "cached_tokens")
        n_accepted, n_rejected = (
            details(usages, "completion", f"{what}_prediction_tokens") for what in ("accepted", "rejected")
        )
        server.wait_for(lambda report: told(server)["spec_decode_num_draft_tokens_total"] == n_accepted + n_rejected)
        counts = told(server)
        assert (counts["prefix_cache_queries_total"], counts["prefix_cache_hits_total"]) == (n_prompt, n_cached)
        assert n_accepted > 0
        assert counts["spec_decode_num_accepted_tokens_total"] == n_accepted
        assert counts["spec_decode_num_accepted_tokens_per_pos_total"] == n_accepted
        assert 0 < counts["spec_decode_num_drafts_total"] <= counts["spec_decode_num_draft_tokens_total"]
        assert counts["inter_token_latency_seconds_count"] == n_output - n_requests
        gaps_ms = sum(line["total_ms"] - line["first_token_ms"] for line in logged(server))
        assert counts["inter_token_latency_seconds_sum"] == pytest.approx(gaps_ms / 1e3, rel=1e-3)
        # each token but the last one of an answer is computed again as an input, and so is each draft
        n_computed = n_prompt - n_cached + n_output - n_requests + n_rejected
        if pages < _MANY_PAGES:
            assert counts["num_preemptions_total"] > 0
            assert counts["iteration_tokens_total_sum"] >= n_computed
        else:
            assert counts["num_preemptions_total"] == 0
            assert counts["iteration_tokens_total_sum"] == n_computed


def test_they_can_be_turned_off() -> None:
    with real_server("--model", "hash-chain", "--set", "gateway.vllm_metrics=false") as server:
        assert not told(server)
