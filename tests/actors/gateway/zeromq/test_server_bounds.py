"""What ZeroMQ clients can make a gateway hold is bounded in all: large requests that come, answers that nobody reads."""

from __future__ import annotations

import msgspec
import zmq

from actors.gateway.admission.body_budget import UNCOUNTED_BYTES
from actors.gateway.zeromq.clients import RefusalQueue
from messages import public
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.transport import zmq_options
from messages.wire.arrays import int32s
from tests.support.gateway.fake_scheduler import oracle, text_ids
from tests.support.gateway.held_text import HeldText
from tests.support.gateway.zmq_clients import generate, zmq_rig

FULL = "x" * 200_000  # more than half of the budget below
BUDGET_BYTES = 4 * UNCOUNTED_BYTES


def large(request: str) -> public.Generate:
    return generate(request, prompt=FULL, tokens=int32s([]))


async def test_large_requests_share_a_budget_with_http_and_small_ones_pass() -> None:
    bounds = {"max_length": 300_000, "max_body_bytes": BUDGET_BYTES, "max_bodies_bytes": 1}
    async with zmq_rig(2, **bounds) as (r, (one, two)), r.http() as http:
        scheduler = await r.add_scheduler(is_automatic=False)
        slow = HeldText()
        assert r.gateway.servers.zeromq is not None
        r.gateway.admission.builder.encoder.model = slow
        await one.send(large("a"))
        await r.cluster.wait_until(lambda: r.gateway.bodies.n_bytes > len(FULL) - UNCOUNTED_BYTES)
        held = r.gateway.bodies.n_bytes
        await two.send(large("b"))
        refused = await two.receive()
        assert isinstance(refused, public.Failed)
        assert (refused.request, refused.code, refused.retry_after_s) == ("b", "unavailable", 1.0)
        bound = f"body: expected at most {BUDGET_BYTES} bytes in large bodies together (gateway.max_bodies_bytes), got "
        assert refused.detail.startswith(bound)
        answer = await http.post("/v1/completions", json={"prompt": FULL, "max_tokens": 2})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_many_bodies")
        await two.send(generate("small", n=2))
        assert isinstance(await two.receive(), public.Accepted)
        assert r.gateway.bodies.n_bytes == held
        slow.may_go.set()
        assert isinstance(await one.receive(), public.Accepted)
        assert r.gateway.bodies.n_bytes == 0
        await two.send(large("b"))
        assert isinstance(await two.receive(), public.Accepted)
        await r.cluster.wait_until(lambda: len(scheduler.running) == 3)
        scheduler.step(8)
        assert await one.receive_tokens(8) == oracle(text_ids(FULL), 8)


async def test_a_request_larger_than_any_may_be_is_refused_by_its_size() -> None:
    async with zmq_rig(max_length=300_000, max_body_bytes=BUDGET_BYTES // 2) as (r, (wire,)):
        await r.add_scheduler()
        await wire.send(large("a"))
        refused = await wire.receive()
        assert isinstance(refused, public.Failed)
        assert refused.code == "too_large"
        assert refused.detail.startswith(f"body: expected at most {BUDGET_BYTES // 2} bytes, got 200")
        assert r.gateway.bodies.n_bytes == 0


async def test_an_answer_that_is_asked_for_again_comes_in_messages_of_a_bounded_size() -> None:
    sampling = Sampling(temperature=0.0, logprobs=20)
    async with zmq_rig(2) as (r, (one, two)):
        scheduler = await r.add_scheduler(is_automatic=False)
        words = generate(n=1000, sampling=sampling)
        await one.send(words)
        assert isinstance(await one.receive(), public.Accepted)
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(1000)
        await two.send(words)
        assert isinstance(await two.receive(), public.Accepted)
        chunks = await until_finished(two.receive)
        ids = [token for chunk in chunks for token in chunk.ids.tolist()]
        assert ids == oracle([1, 2], 1000)
        tops = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
        assert max(top.top_ids.nbytes + top.top.nbytes for top in tops) <= 16 << 10
        assert [len(top.top_ids) for top in tops] == [20 * len(chunk.ids) for chunk in chunks]


async def until_finished(hear) -> list[public.Chunk]:
    chunks: list[public.Chunk] = []
    while not isinstance(message := await hear(), public.Finished):
        assert isinstance(message, public.Chunk)
        chunks.append(message)
    return chunks


async def test_answers_that_wait_for_a_client_are_few_and_nothing_stops_libzmq_from_reading() -> None:
    """A full receiving pipe would let a client that leaves end the gateway's process; `zmq_options` says why."""
    async with zmq_rig() as (r, _):
        assert r.gateway.servers.zeromq is not None
        socket = r.gateway.servers.zeromq._socket._socket
        assert (socket.get(zmq.RCVHWM), socket.get(zmq.SNDHWM), socket.get(zmq.MAXMSGSIZE)) == (
            0,
            512,
            zmq_options.PUBLIC_FRAME_BYTES,
        )


async def test_a_refusal_never_says_more_than_a_screen() -> None:
    async with zmq_rig() as (_, (wire,)):
        long_name = "x" * 50_000
        await wire._socket.send_multipart([msgspec.msgpack.encode({"kind": "Generate", "request": "r", long_name: 1}), b""])
        refused = await wire.receive()
        assert isinstance(refused, public.Failed)
        assert (refused.request, refused.code) == ("r", "invalid")
        assert 256 < len(refused.detail) <= 2_000


async def test_no_refusal_is_lost_when_a_client_reads_late() -> None:
    """A call whose refusal is lost would wait for its deadline."""
    async with zmq_rig() as (r, (wire,)):
        await r.add_scheduler()
        names = [str(number) for number in range(3000)]  # more than all buffers between the two hold
        for name in names:
            await wire.send(generate(name, model="other", terms=Terms(stop=["x" * 250])))
        heard = [await wire.receive() for _ in names]
        assert [failed.request for failed in heard if isinstance(failed, public.Failed)] == names


def test_refusals_wait_in_order_and_in_a_bounded_number() -> None:
    sent: list[tuple[bytes, int]] = []
    room = {b"a": 1, b"b": 9}

    def send(identity: bytes, message: public.Alive) -> bool:
        room[identity] -= 1
        if room[identity] >= 0:
            sent.append((identity, int(message.incarnation)))
        return room[identity] >= 0

    late = RefusalQueue(send)  # pyright: ignore[reportArgumentType]
    for number in range(4000):
        late.send(b"a", public.Alive(incarnation=number))
    late.send(b"b", public.Alive(incarnation=0))
    assert (sent, len(late)) == ([(b"a", 0), (b"b", 0)], 2048)
    room[b"a"] = 2
    late.flush()
    assert (sent[2:], len(late)) == ([(b"a", 1), (b"a", 2)], 2046)
    room[b"a"] = 4000
    late.flush()
    assert ([number for _, number in sent[4:]], len(late)) == (list(range(3, 2049)), 0)
