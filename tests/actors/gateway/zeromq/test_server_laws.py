"""The ZeroMQ server, message by message: a request said twice, cancelled early, windows, journals that know nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from actors.gateway.admission.caller import caller_of_address
from messages import public
from messages.client import AsyncClient
from messages.generation.terms import Terms
from messages.wire.arrays import int32s
from tests.support.gateway.fake_scheduler import oracle, text_ids
from tests.support.gateway.held_text import HeldText
from tests.support.gateway.zmq_clients import GREEDY, generate, receive_four_of_eight, zmq_rig
from tests.support.waiting import DEADLINE_S

LONG = "x" * 5000  # long enough to be tokenised off the loop


async def test_a_request_said_again_is_attached_where_the_client_stands() -> None:
    async with zmq_rig(2) as (r, (one, two)):
        scheduler = await receive_four_of_eight(r, one)
        for wire, have in ((one, 1), (two, 3), (two, 0)):
            await wire.send(generate(have=have))
            assert isinstance(await wire.receive(), public.Accepted)
            assert await wire.receive_tokens(4 - have) == oracle([1, 2], 4)[have:]
        scheduler.step(4)
        assert await two.receive_tokens(4) == oracle([1, 2], 8)[4:]
        finished = await two.receive()
        assert isinstance(finished, public.Finished)
        assert (finished.reason, finished.n_generated) == ("length", 8)
        assert await one.is_silent(), "the newest connection is the client"
        assert len(scheduler.submits) == 1


async def test_what_cannot_be_attached_is_refused_by_name() -> None:
    async with zmq_rig() as (r, (wire,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        await wire.send(generate(have=3))
        unknown = await wire.receive()
        assert isinstance(unknown, public.Failed)
        assert (unknown.code, unknown.field, unknown.request) == ("not_found", "request", "r")
        await wire.send(generate())
        assert isinstance(await wire.receive(), public.Accepted)
        await wire.send(generate(have=1))
        ahead = await wire.receive()
        assert isinstance(ahead, public.Failed)
        assert (ahead.code, ahead.field) == ("invalid", "have")
        await wire.send(generate(n=9))
        other = await wire.receive()
        assert isinstance(other, public.Failed)
        assert (other.code, other.field) == ("conflict", "request")
        await wire.send(public.CancelRequest(request="nobody's"))
        nobody = await wire.receive()
        assert isinstance(nobody, public.Failed)
        assert nobody.code == "not_found"
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(8)
        assert await wire.receive_tokens(8) == oracle([1, 2], 8), "the stream was not disturbed"


async def test_a_request_said_twice_while_it_is_tokenised_runs_once_for_the_newest_connection() -> None:
    async with zmq_rig(2) as (r, (one, two)):
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = HeldText()
        r.gateway.admission.builder.encoder.model = slow
        words = generate(prompt=LONG, tokens=int32s([]))
        await one.send(words)
        assert await one.is_silent()
        await two.send(words)
        assert await two.is_silent()
        await one.send(generate(prompt=LONG + "y", tokens=int32s([])))
        other = await one.receive()
        assert isinstance(other, public.Failed)
        assert other.field == "request"
        slow.may_go.set()
        assert isinstance(await two.receive(), public.Accepted)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(8)
        assert await two.receive_tokens(8) == oracle(text_ids(LONG), 8)
        assert await one.is_silent()
        assert (len(scheduler.submits), slow.n_encoded) == (1, 1)


async def test_a_cancel_that_overtakes_the_tokenizer_is_kept() -> None:
    async with zmq_rig() as (r, (wire,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = HeldText()
        r.gateway.admission.builder.encoder.model = slow
        await wire.send(generate(prompt=LONG, tokens=int32s([])))
        await wire.send(public.CancelRequest(request="r"))
        assert await wire.is_silent()
        slow.may_go.set()
        assert isinstance(await wire.receive(), public.Accepted)
        finished = await wire.receive()
        assert isinstance(finished, public.Finished)
        assert (finished.reason, finished.n_generated) == ("cancelled", 0)
        await r.cluster.wait_until(lambda: not scheduler.running and not r.manager.gate.n_active)


async def test_the_window_bounds_what_is_on_the_way_and_received_opens_it() -> None:
    async with zmq_rig(stream_window_tokens=256) as (r, (wire,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        await wire.send(generate(n=2000))
        assert isinstance(await wire.receive(), public.Accepted)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(1000)
        ids = await wire.receive_tokens(256)
        assert await wire.is_silent(), "not one token more"
        for up_to in (100, 100, 50, 5000, 356, 612, 868):
            await wire.send(public.Received(request="r", up_to=up_to))
            allowed = min(1000, max(len(ids), up_to + 256 if up_to <= len(ids) else 0))
            ids += await wire.receive_tokens(allowed - len(ids))
            assert len(ids) == allowed
            assert await wire.is_silent()
        assert ids == oracle([1, 2], 1000)


async def test_a_successor_with_another_journal_computes_the_same_tokens_again() -> None:
    async with zmq_rig() as (r, _), AsyncClient(r.settings.zeromq_endpoint) as client:
        scheduler = await r.add_scheduler(is_automatic=False)
        answer = asyncio.ensure_future(client.generate([5, 6], max_tokens=40, sampling=GREEDY))
        async with asyncio.timeout(DEADLINE_S):
            while not scheduler.running:
                await asyncio.sleep(0.001)
            scheduler.step(7)
            while scheduler.acked < scheduler.sent:
                await asyncio.sleep(0.001)
            await r.kill_gateway()
            scheduler.running.clear()
            await r.start_gateway(2)
            while not scheduler.running:
                await asyncio.sleep(0.001)
            scheduler.step(40)
            assert (await answer).tokens == oracle([5, 6], 40)


async def test_a_journal_kept_over_a_restart_goes_on_exactly_at_have() -> None:
    with TemporaryDirectory(prefix="tg-") as folder:
        async with zmq_rig(2, journal_path=str(Path(folder) / "journal")) as (r, (one, two)):
            scheduler = await r.add_scheduler(is_automatic=False)
            await one.send(generate())
            await r.cluster.wait_until(lambda: scheduler.running)
            scheduler.step(5)
            assert await one.receive_tokens(5) == oracle([1, 2], 5)
            await r.kill_gateway()
            scheduler.running.clear()
            await r.start_gateway(2)
            await r.cluster.wait_until(lambda: scheduler.running)
            assert scheduler.submits[-1].tokens.tolist() == [1, 2, *oracle([1, 2], 5)]
            await two.send(generate(have=4))
            scheduler.step(3)
            assert await two.receive_tokens(4) == oracle([1, 2], 8)[4:]


async def test_what_is_being_tokenised_counts_against_the_limit_on_every_way_in() -> None:
    async with zmq_rig(max_active_requests=3) as (r, (wire,)), r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = HeldText()
        r.gateway.admission.builder.encoder.model = slow
        gate = r.manager.gate
        await wire.send(generate("a", prompt=LONG, tokens=int32s([])))
        await wire.send(generate("b", prompt=LONG, tokens=int32s([])))
        assert await wire.is_silent()
        assert gate.n_reserved == 2
        body = {"prompt": LONG, "max_tokens": 8, "temperature": 0}
        one = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.cluster.wait_until(lambda: gate.n_reserved == 3)
        await wire.send(generate("c"))
        full = await wire.receive()
        assert isinstance(full, public.Failed)
        assert (full.request, full.code, full.retry_after_s > 0) == ("c", "overloaded", True)
        assert (await http.post("/v1/completions", json={**body, "prompt": "x"})).status_code == 429
        slow.may_go.set()
        await r.cluster.wait_until(lambda: len(scheduler.running) == 3)
        assert (gate.n_reserved, gate.n_active) == (0, 3), "each made room for itself"
        scheduler.step(8)
        assert (await one).status_code == 200
        await wire.send(generate("d", prompt="", tokens=int32s([])))
        await r.cluster.wait_until(lambda: gate.n_active == 0 and gate.n_reserved == 0)


async def test_every_term_reaches_the_scheduler_through_every_door() -> None:
    async with zmq_rig() as (r, (wire,)), r.http() as http:
        scheduler = await r.add_scheduler()
        terms = {"max_tokens": 5, "priority": -7, "speculation": False, "ignore_eos": True}
        await wire.send(generate(terms=Terms(**terms, group_tokens=9, caller=b"another!")))  # pyright: ignore[reportArgumentType]
        assert await wire.receive_tokens(5) == oracle([1, 2], 5)
        assert (await http.post("/v1/completions", json={"prompt": [1, 2], "stream": True, **terms})).status_code == 200
        assert [submit.terms for submit in scheduler.submits] == [Terms(**terms, caller=caller_of_address(""))] * 2  # pyright: ignore[reportArgumentType]
