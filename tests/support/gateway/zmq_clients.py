"""A gateway and bare ZeroMQ connections to it: tests send and receive its public messages one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any

import zmq
import zmq.asyncio

from messages import public
from messages.generation.sampling import Sampling
from messages.generation.terms import Terms
from messages.wire.arrays import int32s
from messages.wire.codec import Codec
from messages.wire.message import Message
from tests.support.gateway.fake_scheduler import FakeScheduler, oracle
from tests.support.gateway.gateway_rig import Rig, rig
from tests.support.waiting import DEADLINE_S

GREEDY = Sampling(temperature=0.0)


class ZmqConnection:
    """One connection to the gateway's ZeroMQ endpoint, without a client's retries."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(endpoint)
        self._codec: Codec[Message] = Codec((*public.ClientMessage.__args__, *public.GatewayMessage.__args__))

    async def send(self, message: Message) -> None:
        """Send one message."""
        await self._socket.send_multipart(self._codec.encode(message))

    async def receive(self) -> Message:
        """The next message other than Alive. Raises: TimeoutError after DEADLINE_S."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message = self._codec.decode(*await self._socket.recv_multipart())
                if not isinstance(message, public.Alive):
                    return message

    async def receive_tokens(self, n: int) -> list[int]:
        """The next `n` tokens of one request, from as many chunks as they come in. Fails on a gap or a repeat."""
        ids: list[int] = []
        first = None
        while len(ids) < n:
            message = await self.receive()
            if isinstance(message, public.Chunk):
                first = message.first if first is None else first
                assert message.first == first + len(ids)
                ids += message.ids.tolist()
        return ids

    async def is_silent(self) -> bool:
        """True if the gateway has sent nothing but Alive. An answer never overtakes what was sent before it."""
        await self.send(public.ModelsWanted(call="silent?"))
        return isinstance(await self.receive(), public.Models)

    def close(self) -> None:
        """Close the socket; what is not sent is dropped."""
        self._socket.close(0)
        self._context.term()


@asynccontextmanager
async def zmq_rig(n: int = 1, **settings: Any) -> AsyncIterator[tuple[Rig, list[ZmqConnection]]]:
    """A gateway with a ZeroMQ endpoint and without a scheduler, and `n` connections to it."""
    with TemporaryDirectory(prefix="tg-") as folder:
        async with rig(with_scheduler=False, zeromq_endpoint=f"ipc://{folder}/zeromq-0", **settings) as r:
            connections = [ZmqConnection(r.settings.zeromq_endpoint) for _ in range(n)]
            try:
                yield r, connections
            finally:
                for connection in connections:
                    connection.close()


def generate(request: str = "r", n: int = 8, **fields: Any) -> public.Generate:
    """A greedy request for `n` tokens after the prompt [1, 2], unless `fields` say otherwise."""
    return public.Generate(
        **{"request": request, "sampling": GREEDY, "tokens": int32s([1, 2]), "terms": Terms(max_tokens=n), **fields}
    )


async def receive_four_of_eight(r: Rig, connection: ZmqConnection) -> FakeScheduler:
    """Start a request for eight tokens on a connection and receive the first four; the scheduler holds the others."""
    scheduler = await r.add_scheduler(is_automatic=False)
    await connection.send(generate())
    assert isinstance(await connection.receive(), public.Accepted)
    await r.cluster.wait_until(lambda: scheduler.running)
    scheduler.step(4)
    assert await connection.receive_tokens(4) == oracle([1, 2], 4)
    return scheduler
