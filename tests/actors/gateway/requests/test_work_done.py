"""What clients are told about the work of a request: the header Server-Timing, and the drafts in the usage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from actors.gateway.requests.request_spec import Ended
from actors.gateway.requests.work_done import n_cached_at, n_cached_of, server_timing
from messages.generation.sequences import Work
from tests.support.answers.client_libraries import openai
from tests.support.dispatch.dispatcher_bench import DispatcherBench
from tests.support.gateway.gateway_rig import rig
from tests.support.waiting import DEADLINE_S

PLAIN = "/v1/completions"
WORK = Work(queue_s=0.001, prefill_s=0.25, decode_s=1.5, n_drafted=6, n_accepted=4)
PHASES = "queue;dur=1.000, prefill;dur=250.000, decode;dur=1500.000, total;dur="


async def test_the_official_client_reads_accepted_and_rejected_drafts() -> None:
    async with rig(with_socket=True) as r:
        host, port = r.address
        r.scheduler().work = WORK

        def talk() -> None:
            with openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="none", timeout=DEADLINE_S) as client:
                asked: Any = {"model": "hash-chain", "prompt": [1, 2], "max_tokens": 3, "temperature": 0, "n": 2}
                whole = client.completions.with_raw_response.create(**asked)
                assert whole.headers["server-timing"].startswith(PHASES)
                events = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
                for usage in (whole.parse().usage, events[-1].usage):
                    assert usage is not None
                    details = usage.completion_tokens_details
                    assert details is not None
                    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (8, 4)

        await asyncio.to_thread(talk)


async def test_the_times_outlive_the_gateway(tmp_path: Path) -> None:
    async with rig(journal_path=str(tmp_path)) as r:
        r.scheduler().work = WORK
        asked: Any = {"json": {"prompt": [1], "max_tokens": 2}, "headers": {"Idempotency-Key": "one"}}
        async with r.http() as http:
            before = await http.post(PLAIN, **asked)
        await r.kill_gateway()
        await r.start_gateway(2)
        async with r.http() as http:
            after = await http.post(PLAIN, **asked)
        assert after.json() == before.json()
        for answer in (before, after):
            assert answer.headers["server-timing"].startswith(PHASES)


async def test_a_stop_string_ends_a_request_whose_phases_nobody_knows() -> None:
    async with rig() as r, r.http() as http:
        r.scheduler().work = WORK
        text = (await http.post(PLAIN, json={"prompt": [1], "max_tokens": 8, "temperature": 0})).json()["choices"][0]["text"]
        stopped = await http.post(PLAIN, json={"prompt": [1], "max_tokens": 8, "temperature": 0, "stop": [text[2:5]]})
        assert stopped.headers["server-timing"].startswith("total;dur=")
        assert "completion_tokens_details" not in stopped.json()["usage"]


def test_what_sequences_of_one_prompt_share_is_no_hit_of_the_cache() -> None:
    """Any of them may be the one that computes the prompt."""
    sequences = DispatcherBench("scheduler/0").submit([1] * 100, n=3, n_prompts=2)
    for sequence, n_cached in zip(sequences, (99, 48, 99, 99, 99, 0), strict=True):
        sequence.accept(0, [5], n_cached=n_cached)
        sequence.end(Ended(reason="length", n_cached=n_cached))
    assert n_cached_of(sequences[0].request) == 48
    assert [n_cached_at(sequence) for sequence in sequences] == [48, 48, 48, 0, 0, 0]


def test_a_sequence_without_a_token_says_nothing_of_the_cache() -> None:
    whole, cancelled = DispatcherBench("scheduler/0").submit([1] * 100, n=2)
    whole.accept(0, [5], n_cached=48)
    whole.end(Ended(reason="length", n_cached=48))
    cancelled.end(Ended(reason="cancelled"))
    assert n_cached_of(whole.request) == 48


def test_a_request_that_was_submitted_again_says_so() -> None:
    [sequence] = DispatcherBench("scheduler/0").submit([1])
    assert "submissions" not in server_timing(sequence.request)
    sequence.n_submissions = 3
    assert server_timing(sequence.request).endswith(', submissions;desc="3"')
