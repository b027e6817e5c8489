"""Messages with large bodies: sent again, cancelled, or sent with another body while they are being read."""

from __future__ import annotations

from messages import public
from tests.support.gateway.fake_scheduler import oracle
from tests.support.gateway.zmq_clients import zmq_rig

BODY = b'{"prompt":"ab","max_tokens":40,"temperature":0' + b" " * 300_000 + b"}"
ASKED = public.AnswersWanted(request="mine", api="completion", body=BODY)


async def test_a_large_message_that_comes_again_is_one_request_of_its_newest_connection() -> None:
    async with zmq_rig(2) as (r, (first, second)):
        scheduler = await r.add_scheduler()
        await first.send(ASKED)
        await second.send(ASKED)
        tokens: list[int] = []
        while not isinstance(message := await second.receive(), public.Finished):
            if isinstance(message, public.Chunk):
                tokens += message.ids.tolist()
        assert tokens == oracle([97, 98], 40)
        assert len(scheduler.submits) == 1
        assert r.gateway.bodies.n_bytes == 0


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
