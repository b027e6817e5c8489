"""Messages with large bodies: sent again, cancelled, or sent with another body while they are being read."""

from __future__ import annotations

import asyncio

import pytest

from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.bodies.large_bodies import BodyReader
from actors.gateway.requests.refusals import Refusal
from actors.gateway.zeromq.large_messages import LargeMessages
from messages import public
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.zmq_clients import zmq_rig

BODY = b'{"prompt":"ab","max_tokens":40,"temperature":0' + b" " * 300_000 + b"}"
ASKED = public.AnswersWanted(request="mine", api="completion", body=BODY)


async def test_a_large_message_that_comes_twice_is_one_request() -> None:
    async with zmq_rig() as (r, (connection,)):
        scheduler = await r.add_scheduler()
        await connection.send(ASKED)
        await connection.send(ASKED)
        tokens: list[int] = []
        while not isinstance(message := await connection.receive(), public.Finished):
            if isinstance(message, public.Chunk):  # the second message may find the stream under way: it begins again
                tokens[message.first :] = message.ids.tolist()
        assert tokens == oracle([97, 98], 40)
        assert len(scheduler.submits) == 1
        assert r.gateway.bodies.n_bytes == 0


async def test_the_newest_connection_that_has_sent_a_large_message_is_its_client() -> None:
    tasks: list[asyncio.Future[None]] = []
    understood: list[tuple[bytes, str]] = []
    refused: list[Refusal] = []
    large = LargeMessages(
        BodyReader(max_length=100, max_batch=4),
        BodyBudget(1 << 20, 1 << 20),
        spawn=lambda identity, request, work: tasks.append(asyncio.ensure_future(work())),
        understood=lambda identity, asked, new, n_bytes: understood.append((identity, new.request)),
        refuse=lambda identity, request, refusal, origin: refused.append(refusal),
        cancel=lambda identity, request: None,
    )
    assert large.read_if_large(b"first", ASKED, len(BODY), b"")
    assert large.read_if_large(b"second", ASKED, len(BODY), b"")
    await asyncio.gather(*tasks)
    assert (understood, refused, len(tasks)) == ([(b"second", "mine")], [], 1)
    assert large.unread("mine") is None


async def test_a_message_with_the_id_of_another_tenant_is_another_request() -> None:
    tasks: list[asyncio.Future[None]] = []
    understood: list[bytes] = []
    large = LargeMessages(
        BodyReader(max_length=100, max_batch=4),
        BodyBudget(1 << 20, 1 << 20),
        spawn=lambda identity, request, work: tasks.append(asyncio.ensure_future(work())),
        understood=lambda identity, asked, new, n_bytes: understood.append(identity),
        refuse=lambda identity, request, refusal, origin: None,
        cancel=lambda identity, request: None,
        are_owned=True,
    )
    assert large.read_if_large(b"first", ASKED, len(BODY), b"me")
    with pytest.raises(Refusal, match="belongs to another request"):
        large.read_if_large(b"stranger", ASKED, len(BODY), b"you")
    assert large.read_if_large(b"second", ASKED, len(BODY), b"me")
    await asyncio.gather(*tasks)
    assert understood == [b"second"]


async def test_a_large_message_is_cancelled_while_it_is_read() -> None:
    async with zmq_rig() as (r, (connection,)):
        scheduler = await r.add_scheduler(is_automatic=False)
        await connection.send(ASKED)
        await connection.send(public.CancelRequest(request="mine"))
        assert isinstance(await connection.receive(), public.Accepted)
        finished = await connection.receive()
        assert isinstance(finished, public.Finished)
        assert (finished.reason, len(scheduler.running)) == ("cancelled", 0)


async def test_another_body_under_the_id_of_a_large_message_is_a_conflict() -> None:
    async with zmq_rig() as (r, (connection,)):
        await r.add_scheduler(is_automatic=False)
        await connection.send(ASKED)
        await connection.send(public.AnswersWanted(request="mine", api="completion", body=b'{"prompt":"ab"}'))
        answers = [await connection.receive() for _ in range(2)]
        (failed,) = [answer for answer in answers if isinstance(answer, public.Failed)]
        assert (failed.code, failed.field) == ("conflict", "request")
        assert any(isinstance(answer, public.Accepted) for answer in answers)
