"""A gateway whose journal disk refuses, as its clients see it: streams go on, new requests are refused, all recovers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from actors.gateway.journal.frames import Kind
from actors.gateway.journal.records import decode_request, decode_spec
from messages.client import AsyncClient
from messages.errors import Unavailable
from tests.support.gateway.asgi_stream import AsgiStream
from tests.support.gateway.fake_scheduler import ids_text, oracle
from tests.support.gateway.gateway_rig import Rig
from tests.support.gateway.journal_file import frames_in, spoil
from tests.support.gateway.journal_rig import COMPLETION, GREEDY, journal_rig
from tests.support.metric_values import metric_value
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow


def refused(answer: httpx.Response) -> bool:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "journal_unavailable"), answer.text
    assert error["type"] == "service_unavailable_error"
    return int(answer.headers["retry-after"]) >= 1


async def test_a_response_in_the_background_that_could_not_be_recorded_is_refused_like_any_other() -> None:
    async with journal_rig() as (r, _, disk), r.http() as http:
        disk.refuse()  # nobody knows it yet
        body = {"input": [{"role": "user", "content": "hi"}], "background": True, "max_output_tokens": 3}
        assert refused(await http.post("/v1/responses", json=body, headers={"Idempotency-Key": "resp_mine"}))
        assert (await http.get("/v1/responses/resp_mine")).status_code == 404


async def test_streams_go_on_and_new_requests_are_refused_until_the_disk_recovers() -> None:
    async with journal_rig() as (r, scheduler, disk), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        pieces = client.stream(tokens=[5, 6], max_tokens=40, sampling=GREEDY)
        first = asyncio.ensure_future(anext(pieces))  # pyright: ignore[reportArgumentType]
        await until(lambda: bool(scheduler.running))
        scheduler.step(1)
        ids = list((await first).ids)
        disk.refuse()
        scheduler.step(3)
        while len(ids) < 4:
            ids += (await anext(pieces)).ids
        await until(lambda: not r.gateway.journal.is_healthy)
        health = await http.get("/v1/health")
        assert (health.status_code, health.json()["parts"]["journal"]) == (503, "refuses writes")
        assert r.gateway.statistics()["journal_refuses"] == 1.0
        exposition = r.gateway.tree.render("gateway/0", r.gateway.registry).decode()
        figures = dict(line.rsplit(" ", 1) for line in exposition.splitlines() if "journal_" in line and line[0] != "#")
        healthy = next(value for name, value in figures.items() if name.startswith("tardigrade_journal_healthy"))
        waiting = next(value for name, value in figures.items() if name.startswith("tardigrade_journal_waiting_bytes"))
        assert (float(healthy), float(waiting) > 0) == (0.0, True)
        assert refused(await http.post("/v1/completions", json=COMPLETION))
        with pytest.raises(Unavailable, match="journal"):
            await client.generate([7], max_tokens=3)
        disk.recover()
        await until(lambda: r.gateway.journal.is_healthy)
        assert (await http.get("/v1/health")).status_code == 200
        assert "journal_refuses" not in r.gateway.statistics()
        running = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION))
        await until(lambda: len(scheduler.running) == 2)
        scheduler.step(40)
        assert (await running).status_code == 200
        async for piece in pieces:
            ids += piece.ids
        assert ids == oracle([5, 6], 40)
        await until(lambda: scheduler.acked == scheduler.sent)


@pytest.mark.parametrize("is_late", [False, True])
async def test_requests_that_meet_the_refusal_itself_were_never_accepted(is_late: bool) -> None:
    async with journal_rig() as (r, scheduler, disk), r.http() as http:
        disk.is_late = is_late
        disk.refuse()
        kinds = [{}, {"stream": True, "n": 3}, {"n": 2}]
        answers = asyncio.gather(*(http.post("/v1/completions", json=COMPLETION | more) for more in kinds))
        await until(lambda: len(scheduler.submits) == 6)
        scheduler.step(2)  # tokens and endings of what is being withdrawn mean nothing
        assert all(refused(answer) for answer in await asyncio.wait_for(answers, DEADLINE_S))
        await until(lambda: not scheduler.running)
        assert {cancel.why for cancel in scheduler.cancels} == {"withdrawn"}
        assert r.manager.gate.n_active == 0
        disk.recover()
        await until(lambda: r.gateway.journal.is_healthy)
        await r.kill_gateway()
        gateway = await r.start_gateway(2)
        assert (gateway.manager.gate.n_active, len(scheduler.submits)) == (0, 6), "nothing of them comes back"


@pytest.mark.parametrize(
    "wish", [{"max_tokens": 1}, {"max_tokens": 2}, {"max_tokens": 2, "n": 2}, {"stop": [str(oracle([1, 2], 2)[1])]}]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_complete_before_the_refusal_is_withdrawn_all_the_same(wish: dict, stream: bool) -> None:
    """The journal's thread is held inside a commit meanwhile, so the ending comes first."""
    async with journal_rig() as (r, scheduler, disk), r.http() as http:
        disk.gate.clear()
        disk.refuse()
        answer = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION | wish | {"stream": stream}))
        await until(lambda: len(scheduler.submits) == wish.get("n", 1))
        requests = r.manager.unfinished.all
        scheduler.step(2)
        await until(lambda: all(s.ended is not None for request in requests for s in request.sequences))
        disk.gate.set()
        assert refused(await asyncio.wait_for(answer, DEADLINE_S))
        await until(lambda: not scheduler.running)
        assert r.manager.gate.n_active == 0


async def test_a_zeromq_request_that_meets_the_refusal_itself_was_never_accepted() -> None:
    async with journal_rig() as (r, scheduler, disk), AsyncClient(r.settings.zeromq_endpoint) as client:
        disk.refuse()
        with pytest.raises(Unavailable, match="journal"):
            await client.generate([7], max_tokens=3, request="mine")
        assert len(scheduler.submits) == 1
        disk.recover()
        await until(lambda: r.gateway.journal.is_healthy)
        scheduler.is_automatic = True
        answer = await client.generate([7], max_tokens=3, request="mine", sampling=GREEDY)
        assert answer.tokens == oracle([7], 3), "the same id may come again"


async def test_a_full_buffer_pauses_the_scheduler_and_everything_arrives_afterwards() -> None:
    async with journal_rig(journal_buffer_bytes=1) as (r, scheduler, disk), AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = asyncio.ensure_future(client.generate([5, 6], max_tokens=20, sampling=GREEDY))
        await until(lambda: bool(scheduler.running))
        scheduler.step(2)
        await until(lambda: scheduler.acked == 1)
        disk.refuse()
        for _ in range(6):
            scheduler.step(3)
        await until(lambda: r.gateway.journal.state.is_full)
        assert (scheduler.acked, scheduler.sent) == (1, 7)
        disk.recover()
        assert (await asyncio.wait_for(answer, DEADLINE_S)).tokens == oracle([5, 6], 20)
        await until(lambda: scheduler.acked == 7)


async def test_a_gateway_killed_while_its_disk_refuses_computes_the_same_tokens_again() -> None:
    """Its successor's journal knows the request, but fewer tokens than the client holds."""
    async with journal_rig() as (r, scheduler, disk), AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = asyncio.ensure_future(client.generate([5, 6], max_tokens=40, sampling=GREEDY))
        await until(lambda: bool(scheduler.running))
        scheduler.step(2)
        await until(lambda: scheduler.acked == 1)
        disk.refuse()
        scheduler.step(7)
        await until(lambda: [len(s.state.tokens) for s in client._streams.values()] == [9])
        await r.kill_gateway()
        scheduler.running.clear()
        await r.start_gateway(2)
        await until(lambda: bool(scheduler.running))
        assert len(scheduler.submits[-1].tokens) == 4, "two tokens were recorded"
        scheduler.step(40)
        assert (await asyncio.wait_for(answer, DEADLINE_S)).tokens == oracle([5, 6], 40)


@pytest.mark.parametrize("n", [1, 2])
async def test_events_that_only_a_dead_gateway_had_are_waited_for_or_refused_and_never_mixed_up(n: int) -> None:
    """Its successor computes the tokens of two sequences in another order. Those of one sequence have only one."""
    body = {**COMPLETION, "max_tokens": 6, "n": n, "stream": True}
    async with journal_rig(sse_ping_s=0.01) as (r, scheduler, disk):
        first = AsgiStream(r, "/v1/completions", body, {"Idempotency-Key": "k"})
        await until(lambda: len(scheduler.running) == n)
        scheduler.step(1)
        await first.until_id(n)
        request = r.manager.unfinished.all[0]
        disk.refuse()
        scheduler.step(2)
        await first.until_id(3 * n)
        n_items, attempts = len(request.stream_items), disk.attempts
        await until(lambda: disk.attempts > attempts + 2)  # meanwhile the silent stream would like a ping
        assert len(request.stream_items) == n_items, "it is not shown, because no later process would know its place"
        await r.kill_gateway()
        scheduler.running.clear()
        await r.start_gateway(2)
        await until(lambda: len(scheduler.running) == n)
        scheduler.running = dict(reversed(scheduler.running.items()))
        again = AsgiStream(r, "/v1/completions", body, {"Idempotency-Key": "k", "Last-Event-ID": str(3 * n)})
        known = AsgiStream(r, "/v1/completions", body, {"Idempotency-Key": "k", "Last-Event-ID": str(n)})
        for _ in range(5):
            scheduler.step(1)
        texts = texts_of((await known.end()).decode())
        begun = texts_of(_up_to(first.body, n))
        whole = ids_text(oracle([1, 2], 6))
        assert {index: begun[index] + texts[index] for index in texts} == dict.fromkeys(range(n), whole)
        more = await again.end()
        if n == 1:
            assert texts_of(first.body.decode())[0] + texts_of(more.decode())[0] == whole
        else:
            assert again.status == 400
            assert "shown while the journal's disk refused writes" in again.error["message"]


def _up_to(body: bytes, event: int) -> str:
    """A stream up to the event with this id."""
    end = b"id: %d\n" % event
    return (body.partition(end)[0] + end + b"\n").decode()


def texts_of(stream: str) -> dict[int, str]:
    """The text of each choice in a stream of events."""
    texts: dict[int, str] = {}
    for line in stream.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


async def test_a_damaged_step_costs_no_request_and_changes_no_token() -> None:
    """The client holds tokens behind the damaged step; they are computed again and it sees each once."""
    async with journal_rig() as (r, scheduler, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        answer = asyncio.ensure_future(client.generate([5, 6], max_tokens=40, sampling=GREEDY))
        await until(lambda: bool(scheduler.running))
        for n in range(1, 5):
            scheduler.step(2)
            await until(lambda n=n: scheduler.acked == n)
        await until(lambda: [len(s.state.tokens) for s in client._streams.values()] == [8])
        await r.kill_gateway()
        spoil(Path(r.settings.journal_path), 3)  # behind the frames of the start, the request and the first step
        scheduler.running.clear()
        await r.start_gateway(2)
        await until(lambda: bool(scheduler.running))
        assert len(scheduler.submits[-1].tokens) == 4, "the prompt and the two tokens before the damaged step"
        scheduler.step(40)
        assert (await asyncio.wait_for(answer, DEADLINE_S)).tokens == oracle([5, 6], 40)


async def test_a_writer_that_breaks_ends_the_gateway_with_a_fault() -> None:
    async with journal_rig() as (r, _, disk), r.http() as http:
        main_task = r.cluster.actors["gateway/0"][1]
        disk.trouble = MemoryError("none left")
        lost = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION))
        assert await asyncio.wait_for(asyncio.shield(main_task), DEADLINE_S) == 1
        await until(lambda: bool(r.cluster.faults))
        fault = r.cluster.faults.pop()
        assert (fault.doing, "MemoryError: none left" in fault.reason) == ("journal", True)
        lost.cancel()


def test_the_refusal_is_worth_reading() -> None:
    from actors.gateway.http.errors import error_response
    from actors.gateway.requests.refusals import journal_unavailable

    error = json.loads(bytes(error_response(journal_unavailable()).body))["error"]
    assert "journal" in error["message"]


async def test_a_disk_that_hangs_is_told_and_what_waits_goes_on_when_it_answers() -> None:
    async with journal_rig() as (r, scheduler, disk), r.http() as http, AsyncClient(r.settings.zeromq_endpoint) as client:
        writer = r.gateway.journal._writer
        assert writer is not None
        writer._hang_s = 0.05
        writer._check_hang()
        pieces = client.stream(tokens=[5, 6], max_tokens=4, sampling=GREEDY)
        first = asyncio.ensure_future(anext(pieces))  # pyright: ignore[reportArgumentType]
        await until(lambda: bool(scheduler.running))
        scheduler.step(1)
        ids = list((await first).ids)
        disk.gate.clear()
        try:
            scheduler.step(3)
            waiting = asyncio.ensure_future(http.post("/v1/completions", json=COMPLETION))
            assert refused(await waiting), "it had come before anybody knew"
            health = await http.get("/v1/health")
            assert (health.status_code, health.json()["parts"]["journal"]) == (503, "hangs")
            assert refused(await http.post("/v1/completions", json=COMPLETION))
            r.gateway.statistics()
            assert metric_value(r.gateway.metrics.journal_healthy) == 0.0
        finally:
            disk.gate.set()
        async for piece in pieces:
            ids += piece.ids
        assert ids == oracle([5, 6], 4)
        await until(lambda: r.gateway.journal.is_healthy)
        scheduler.is_automatic = True
        assert (await http.post("/v1/completions", json=COMPLETION)).status_code == 200
        assert r.manager.gate.n_active == 0
        await until(lambda: _requests_in(r) == ["zeromq"])


def _requests_in(r: Rig) -> list[str]:
    """The routes of the requests that the journal still holds."""
    living: dict[int, str] = {}
    for frame in frames_in(Path(r.settings.journal_path)):
        if frame.kind is Kind.REQUEST:
            living[frame.number] = decode_spec(decode_request(frame.payload).spec).api
        elif frame.kind is Kind.FORGET:
            living.pop(frame.number, None)
    return list(living.values())
