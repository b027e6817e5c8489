"""The load tool against a small server in the same event loop: what it counts, what it calls an error, when it stops."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from supervisor.bench.http.completion_events import MeasuredAnswer
from supervisor.bench.http.stream import Target
from supervisor.bench.lengths import parse_lengths
from supervisor.bench.load import Load, LoadLimit
from supervisor.bench.prompts import Job, jobs_of_file, random_text, synthetic_jobs
from supervisor.bench.report import figures
from supervisor.bench.samples import add_up, samples_of
from supervisor.bench.serve_load import LoadPlan, share_out

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: str) -> bytes:
    """One chunk on the wire."""
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


GOOD = (
    OK
    + chunk('data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
    + chunk('data: {"choices":[{"delta":{"content":"a b"}}]}\n\ndata: {"choices":[{"delta":{"content":"c"}}]}\n\n')
    + chunk('data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n')
    + chunk('data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n')
    + b"0\r\n\r\n"
)
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy"
CUT = OK + chunk('data: {"choices":[{"text":"a"}]}\n\n')
ERROR_EVENT = OK + chunk('data: {"error":{"message":"no"}}\n\n') + b"0\r\n\r\n"


@asynccontextmanager
async def answering(*replies: bytes) -> AsyncIterator[Load]:
    """A load against a server that gives these replies in turn; it hangs up after those that have no end."""
    left = list(replies)
    tasks: list[asyncio.Task | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            reply = left.pop(0) if len(left) > 1 else left[0]
            writer.write(reply)
            if reply == CUT:
                writer.close()
                return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    jobs = iter(lambda: Job("hello", 3), None)
    load = Load(Target(f"http://127.0.0.1:{port}", timeout_s=60.0), jobs, lambda job: ("/v1/x", {"prompt": job.prompt}))
    try:
        yield load
    finally:
        load.close()
        server.close()
        async with asyncio.timeout(60.0):
            await asyncio.gather(*filter(None, tasks))


async def test_a_closed_loop_counts_what_the_server_counts() -> None:
    async with answering(GOOD) as load:
        result = figures(samples_of(await load.closed_loop(3, LoadLimit(requests=10))))
    assert result["requests"] == {"ended": 10, "good": 10, "errors": {}}
    assert (result["input_tokens"], result["output_tokens"], result["chunks"]) == (70, 30, 20)
    assert (result["tokens_counted_by"], result["tokens_per_chunk"]) == ("usage", 1.5)
    assert result["finish_reasons"] == {"length": 10}
    assert result["ttft_ms"]["count"] == result["e2e_ms"]["count"] == 10


async def test_errors_are_counted_by_their_kind() -> None:
    async with answering(REFUSED, CUT, ERROR_EVENT, GOOD) as load:
        result = figures(samples_of(await load.closed_loop(1, LoadLimit(requests=5))))
    assert {kind: error["count"] for kind, error in result["requests"]["errors"].items()} == {
        "http_429": 1, "cut": 1, "error_event": 1,
    }  # fmt: skip
    assert result["requests"]["errors"]["http_429"]["first"] == "busy"
    assert result["requests"]["good"] == 2


async def test_nobody_listening_is_an_error_not_a_crash() -> None:
    load = Load(Target("http://127.0.0.1:1", timeout_s=60.0), iter([Job("x", 1)] * 2), lambda job: ("/", {}))
    result = figures(samples_of(await load.closed_loop(2, LoadLimit(requests=2))))
    assert result["requests"]["errors"]["connect"]["count"] == 2


async def test_an_open_loop_sends_by_the_clock_and_bounds_what_is_unanswered() -> None:
    async with answering(GOOD) as load:
        result = figures(samples_of(await load.open_loop(iter([0.0] * 6 + [0.05] * 2), LoadLimit(requests=8), limit=4)))
    kinds = {kind: error["count"] for kind, error in result["requests"]["errors"].items()}
    assert result["requests"]["good"] + kinds.get("client_limit", 0) == 8
    assert result["requests"]["good"] >= 4


def test_nothing_more_is_sent_after_so_many_or_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 10.0
    monkeypatch.setattr(time, "perf_counter", lambda: now_s)
    few, short = LoadLimit(requests=2), LoadLimit(duration_s=1.0, began_s=10.0)
    assert [few.next_allowed() for _ in range(3)] == [True, True, False]
    now_s = 10.9
    assert short.next_allowed()
    now_s = 11.0
    assert not short.next_allowed()


def test_without_usage_chunks_stand_in_for_tokens() -> None:
    from supervisor.bench.load import Run

    answer = MeasuredAnswer(scheduled_s=0.0, sent_s=0.0)
    for second in (1.0, 2.0, 3.0):
        answer.handle(b'{"choices":[{"text":"x"}]}', second)
    answer.ended_s = 3.0
    result = figures(samples_of(Run([answer], 0.0, 3.0)))
    assert (result["tokens_counted_by"], result["output_tokens"], result["output_tokens_per_s"]) == ("chunks", 3, 1.0)
    assert result["chunk_gap_ms"]["p50"] == 1000.0


async def test_samples_of_several_processes_add_up() -> None:
    async with answering(GOOD, GOOD, REFUSED, GOOD) as load:
        first = samples_of(await load.closed_loop(1, LoadLimit(requests=3)))
        second = samples_of(await load.closed_loop(1, LoadLimit(requests=2)))
    both = add_up([first, second, first])
    assert (both.n_ended, both.n_good, both.output_tokens, both.errors["http_429"].count) == (8, 6, 18, 2)
    assert both.wall_s == second.ended_s - first.began_s
    assert len(both.ttft_s) == len(both.e2e_s) == 6
    assert both.finish_reasons == {"length": 6}


def test_a_plan_is_shared_out_without_loss() -> None:
    parts = share_out(LoadPlan("http://x", concurrency=7, requests=10, rate_per_s=9.0, warmup=1, processes=3))
    assert [part.concurrency for part in parts] == [3, 2, 2]
    assert [part.requests for part in parts] == [4, 3, 3]
    assert sum(part.rate_per_s for part in parts) == pytest.approx(9.0)
    assert len({part.seed for part in parts}) == 3


@pytest.mark.parametrize(("text", "low", "high"), [("5", 5, 5), ("fixed:7", 7, 7), ("uniform:2:4", 2, 4)])
def test_lengths_are_drawn_from_their_distribution(text: str, low: int, high: int) -> None:
    drawn = [parse_lengths(text).draw(random.Random(seed)) for seed in range(200)]
    assert (min(drawn), max(drawn)) == (low, high)


@pytest.mark.parametrize("text", ["", "0", "-3", "uniform:4:2", "uniform:a:2", "normal:5"])
def test_lengths_refuse_what_they_do_not_know(text: str) -> None:
    with pytest.raises(ValueError, match="lengths: expected"):
        parse_lengths(text)


def test_jobs_come_from_files_line_by_line_over_and_over(tmp_path: Path) -> None:
    (tmp_path / "p").write_text('plain\n{"prompt": "x", "max_tokens": 9}\n[1, 2]\n')
    jobs = jobs_of_file(tmp_path / "p", parse_lengths("4"), random.Random(0))
    assert [next(jobs) for _ in range(4)] == [Job("plain", 4), Job("x", 9), Job([1, 2], 4), Job("plain", 4)]


def test_a_broken_line_of_prompts_is_named(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("fine\n{broken\n")
    with pytest.raises(ValueError, match="line 2"):
        next(jobs_of_file(tmp_path / "p", parse_lengths("4"), random.Random(0)))


def test_text_is_cut_to_the_tokens_that_were_asked_for() -> None:
    text = random_text(50, random.Random(0), lambda words: [ord(c) for c in words[::2]])
    assert 30 < len(text[::2]) <= 50


def test_the_same_seed_gives_the_same_jobs() -> None:
    def jobs() -> list[Job]:
        lengths = parse_lengths("uniform:3:9")
        stream = synthetic_jobs(lengths, lengths, random.Random(3), lambda n, rng: rng.choices(range(9), k=n))
        return [next(stream) for _ in range(5)]

    assert jobs() == jobs()
