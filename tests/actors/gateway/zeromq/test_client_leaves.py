"""A stream that its reader has left is cancelled, however the client goes on: the server computes nothing for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import pytest

from messages.client import AsyncClient
from messages.client.answer import Piece
from tests.support.gateway.zmq_clients import GREEDY, zmq_rig


async def first_of(pieces: AsyncIterator[Piece]) -> None:
    async for _ in pieces:
        break


async def first_of_closed(pieces: AsyncGenerator[Piece, None]) -> None:
    async with aclosing(pieces):
        await first_of(pieces)


@pytest.mark.parametrize("leave", [first_of, first_of_closed])
async def test_though_the_client_is_closed_at_once(leave: Callable) -> None:
    async with zmq_rig() as (r, _):

        async def talk() -> None:
            async with AsyncClient(r.settings.zeromq_endpoint) as client:
                await leave(client.stream(tokens=[6], max_tokens=100, sampling=GREEDY))

        scheduler = await r.add_scheduler(is_automatic=False)
        talking = asyncio.ensure_future(talk())
        await r.cluster.wait_until(lambda: scheduler.running)
        scheduler.step(1)
        await asyncio.wait_for(talking, 60.0)
        await r.cluster.wait_until(lambda: len(scheduler.cancels) == 1)
