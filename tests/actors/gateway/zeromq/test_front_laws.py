"""The ZeroMQ front, message by message: a request said twice, cancelled early, windows, journals that know nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zmq
import zmq.asyncio

from actors.gateway.text.tokenizer import HashChainText
from messages import public
from messages.client import AsyncClient
from messages.generation import Sampling, Terms
from messages.wire.arrays import int32s
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle, text_ids
from tests.support.gateway.gateway_rig import Rig, rig

GREEDY = Sampling(temperature=0.0)
DEADLINE_S = 20.0
LONG = "x" * 5000  # long enough to be tokenised off the loop


class Wire:
    """One bare connection."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(endpoint)
        self._codec: Codec[Message] = Codec((*public.ClientMessage.__args__, *public.FrontMessage.__args__))

    async def say(self, message: Message) -> None:
        await self._socket.send_multipart(self._codec.encode(message))

    async def hear(self) -> Message:
        """The next message that is no beat."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message = self._codec.decode(*await self._socket.recv_multipart())
                if not isinstance(message, public.Alive):
                    return message

    async def hear_tokens(self, n: int) -> list[int]:
        """Chunks until so many tokens have come; without a gap or a repeat."""
        ids: list[int] = []
        first = None
        while len(ids) < n:
            message = await self.hear()
            if isinstance(message, public.Chunk):
                first = message.first if first is None else first
                assert message.first == first + len(ids)
                ids += message.ids.tolist()
        return ids

    async def is_silent(self) -> bool:
        """Is nothing but beats on its way? A question and its answer overtake nothing."""
        await self.say(public.ModelsWanted(call="silent?"))
        return isinstance(await self.hear(), public.Models)

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()


class SlowText(HashChainText):
    """Tokenises when it is told to."""

    def __init__(self) -> None:
        self.may_go, self.n_encoded = threading.Event(), 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert self.may_go.wait(DEADLINE_S)
        self.n_encoded += 1
        return super().encode(text, add_special_tokens=add_special_tokens)


@asynccontextmanager
async def wired(n: int = 1, **settings: Any) -> AsyncIterator[tuple[Rig, list[Wire]]]:
    with TemporaryDirectory(prefix="tg-") as folder:
        async with rig(with_scheduler=False, front_endpoint=f"ipc://{folder}/front-0", **settings) as r:
            wires = [Wire(r.settings.front_endpoint) for _ in range(n)]
            try:
                yield r, wires
            finally:
                for wire in wires:
                    wire.close()


def generate(request: str = "r", n: int = 8, **fields: Any) -> public.Generate:
    return public.Generate(
        **{"request": request, "sampling": GREEDY, "tokens": int32s([1, 2]), "terms": Terms(max_tokens=n), **fields}
    )


async def four_tokens_in(r: Rig, wire: Wire) -> FakeScheduler:
    """A stream of eight tokens, half of them heard on this connection."""
    scheduler = await r.add_scheduler(is_automatic=False)
    await wire.say(generate())
    assert isinstance(await wire.hear(), public.Accepted)
    await r.cluster.wait_until(lambda: scheduler.running)
    scheduler.step(4)
    assert await wire.hear_tokens(4) == oracle([1, 2], 4)
    return scheduler


async def test_a_request_said_again_is_attached_where_the_client_stands() -> None:
    async with wired(2) as (r, (one, two)):
        scheduler = await four_tokens_in(r, one)
        for wire, have in ((one, 1), (two, 3), (two, 0)):
            await wire.say(generate(have=have))
            assert isinstance(await wire.hear(), public.Accepted)
            assert await wire.hear_tokens(4 - have) == oracle([1, 2], 4)[have:]
        scheduler.step(4)
        assert await two.hear_tokens(4) == oracle([1, 2], 8)[4:]
        finished = await two.hear()
        assert isinstance(finished, public.Finished)
        assert (finished.reason, finished.n_generated) == ("length", 8)
        assert await one.is_silent(), "the newest connection is the client"
        assert len(scheduler.submits) == 1


async def test_what_cannot_be_attached_is_refused_by_name() -> None:
    async with wired() as (r, (wire,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        await wire.say(generate(have=3))
        unknown = await wire.hear()
        assert isinstance(unknown, public.Failed)
        assert (unknown.code, unknown.field, unknown.request) == ("not_found", "request", "r")
        await wire.say(generate())
        assert isinstance(await wire.hear(), public.Accepted)
        await wire.say(generate(have=1))
        ahead = await wire.hear()
        assert isinstance(ahead, public.Failed)
        assert (ahead.code, ahead.field) == ("invalid", "have")
        await wire.say(generate(n=9))
        other = await wire.hear()
        assert isinstance(other, public.Failed)
        assert (other.code, other.field) == ("conflict", "request")
        await wire.say(public.CancelRequest(request="nobody's"))
        nobody = await wire.hear()
        assert isinstance(nobody, public.Failed)
        assert nobody.code == "not_found"
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(8)
        assert await wire.hear_tokens(8) == oracle([1, 2], 8), "the stream was not disturbed"


async def test_a_request_said_twice_while_it_is_tokenised_runs_once_for_the_newest_connection() -> None:
    async with wired(2) as (r, (one, two)):
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = SlowText()
        assert r.gateway._zmq is not None
        r.gateway.admission.builder.encoder.model = slow
        words = generate(prompt=LONG, tokens=int32s([]))
        await one.say(words)
        assert await one.is_silent()
        await two.say(words)
        assert await two.is_silent()
        await one.say(generate(prompt=LONG + "y", tokens=int32s([])))
        other = await one.hear()
        assert isinstance(other, public.Failed)
        assert other.field == "request"
        slow.may_go.set()
        assert isinstance(await two.hear(), public.Accepted)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(8)
        assert await two.hear_tokens(8) == oracle(text_ids(LONG), 8)
        assert await one.is_silent()
        assert (len(scheduler.submits), slow.n_encoded) == (1, 1)


async def test_a_cancel_that_overtakes_the_tokenizer_is_kept() -> None:
    async with wired() as (r, (wire,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = SlowText()
        assert r.gateway._zmq is not None
        r.gateway.admission.builder.encoder.model = slow
        await wire.say(generate(prompt=LONG, tokens=int32s([])))
        await wire.say(public.CancelRequest(request="r"))
        assert await wire.is_silent()
        slow.may_go.set()
        assert isinstance(await wire.hear(), public.Accepted)
        finished = await wire.hear()
        assert isinstance(finished, public.Finished)
        assert (finished.reason, finished.n_generated) == ("cancelled", 0)
        await r.cluster.wait_until(lambda: not scheduler.running and r.gateway.desk is not None and not r.gateway.desk.n_active)


async def test_the_window_bounds_what_is_on_the_way_and_received_opens_it() -> None:
    async with wired(stream_window_tokens=256) as (r, (wire,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        await wire.say(generate(n=2000))
        assert isinstance(await wire.hear(), public.Accepted)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(1000)
        ids = await wire.hear_tokens(256)
        assert await wire.is_silent(), "not one token more"
        for up_to in (100, 100, 50, 5000, 356, 612, 868):
            await wire.say(public.Received(request="r", up_to=up_to))
            allowed = min(1000, max(len(ids), up_to + 256 if up_to <= len(ids) else 0))
            ids += await wire.hear_tokens(allowed - len(ids))
            assert len(ids) == allowed
            assert await wire.is_silent()
        assert ids == oracle([1, 2], 1000)


async def test_a_successor_with_another_journal_computes_the_same_tokens_again() -> None:
    async with wired() as (r, _), AsyncClient(r.settings.front_endpoint) as client:
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
        async with wired(2, journal_path=str(Path(folder) / "journal")) as (r, (one, two)):
            scheduler = await r.add_scheduler(is_automatic=False)
            await one.say(generate())
            await r.cluster.wait_until(lambda: scheduler.running)
            scheduler.step(5)
            assert await one.hear_tokens(5) == oracle([1, 2], 5)
            await r.kill_gateway()
            scheduler.running.clear()
            await r.start_gateway(2)
            await r.cluster.wait_until(lambda: scheduler.running)
            assert scheduler.submits[-1].tokens.tolist() == [1, 2, *oracle([1, 2], 5)]
            await two.say(generate(have=4))
            scheduler.step(3)
            assert await two.hear_tokens(4) == oracle([1, 2], 8)[4:]


async def test_what_is_being_tokenised_counts_against_the_limit_on_every_way_in() -> None:
    async with wired(max_active_requests=3) as (r, (wire,)), r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = SlowText()
        assert r.gateway._zmq is not None
        assert r.gateway.desk is not None
        r.gateway.admission.builder.encoder.model = slow
        gate = r.gateway.desk.gate
        await wire.say(generate("a", prompt=LONG, tokens=int32s([])))
        await wire.say(generate("b", prompt=LONG, tokens=int32s([])))
        assert await wire.is_silent()
        assert gate.n_reserved == 2
        body = {"prompt": LONG, "max_tokens": 8, "temperature": 0}
        one = asyncio.ensure_future(http.post("/v1/completions", json=body))
        await r.cluster.wait_until(lambda: gate.n_reserved == 3)
        await wire.say(generate("c"))
        full = await wire.hear()
        assert isinstance(full, public.Failed)
        assert (full.request, full.code, full.retry_after_s > 0) == ("c", "overloaded", True)
        assert (await http.post("/v1/completions", json={**body, "prompt": "x"})).status_code == 429
        slow.may_go.set()
        await r.cluster.wait_until(lambda: len(scheduler.running) == 3)
        assert (gate.n_reserved, gate.n_active) == (0, 3), "each made room for itself"
        scheduler.step(8)
        assert (await one).status_code == 200
        await wire.say(generate("d", prompt="", tokens=int32s([])))
        await r.cluster.wait_until(lambda: gate.n_active == 0 and gate.n_reserved == 0)


async def test_every_term_reaches_the_scheduler_through_every_door() -> None:
    async with wired() as (r, (wire,)), r.http() as http:
        scheduler = await r.add_scheduler()
        terms = {"max_tokens": 5, "priority": -7, "speculation": False, "ignore_eos": True}
        await wire.say(generate(terms=Terms(**terms, group_tokens=9)))  # pyright: ignore[reportArgumentType]
        assert await wire.hear_tokens(5) == oracle([1, 2], 5)
        assert (await http.post("/v1/completions", json={"prompt": [1, 2], "stream": True, **terms})).status_code == 200
        assert [submit.terms for submit in scheduler.submits] == [Terms(**terms)] * 2  # pyright: ignore[reportArgumentType]
