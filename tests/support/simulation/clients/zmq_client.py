"""A ZeroMQ client of a simulated server: the client library over the gateways' real ZeroMQ sockets, in a process of its own.

It asks again under the same id, at the next gateway, until it has the whole answer: its process may be stopped, or die while it
reads. Some cancel what the process before has begun. Some leave the ids to the library, and get a new one each time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from contextvars import copy_context
from typing import Any

from messages.client import AsyncClient
from messages.errors import ClientError, Overloaded, Unavailable
from tests.support.simulation.clients.client import Client
from tests.support.simulation.clients.history import History, Kind
from tests.support.simulation.clients.planned_requests import PlannedRequest
from tests.support.simulation.virtual_loop import PROCESS, LifeState, SimulatedLife, VirtualLoop
from tests.support.simulation.zeromq import Sockets

_KEYED_SHARE, _DEADLY_SHARE, _STOPPED_SHARE, _CANCELLED_SHARE = 0.8, 0.4, 0.15, 0.15
_LIFE_S, _STOP_S = 0.3, (0.1, 8.0)  # the first is a mean


class ZmqClient(Client):
    """Sends one request over the client library, again after each death. `endpoints`: of the gateways."""

    def __init__(
        self,
        planned: PlannedRequest,
        history: History,
        chance: random.Random,
        loop: VirtualLoop,
        sockets: Sockets,
        endpoints: Sequence[str],
    ) -> None:
        super().__init__(planned, history, chance)
        self._loop, self._sockets, self._endpoints = loop, sockets, endpoints
        self._n_asks, self._is_cancelling = chance.randrange(len(endpoints)), False
        # without an id each ask is another request, which may get the answer of another model
        has_id = chance.random() < _KEYED_SHARE or history.has_fallback
        self._id: dict[str, Any] = {"request": planned.request} if has_id else {}

    async def ask(self) -> None:
        life, context = SimulatedLife("client"), copy_context()
        context.run(PROCESS.set, life)
        reading = self._loop.create_task(self._read(), context=context)
        if self.chance.random() < _STOPPED_SHARE:
            self._loop.call_later(self.chance.expovariate(1 / _LIFE_S), self._stop, life)
        lives_s = self.chance.expovariate(1 / _LIFE_S) if self.chance.random() < _DEADLY_SHARE else None
        await asyncio.wait([reading], timeout=lives_s)
        if reading.done():
            reading.result()
        else:
            life.state, life.held = LifeState.DEAD, []
            self._sockets.process_died(life)
            self._is_cancelling = bool(self._id) and self.chance.random() < _CANCELLED_SHARE

    def _stop(self, life: SimulatedLife) -> None:
        if life.state is LifeState.RUNNING:
            life.state = LifeState.PAUSED
            self._loop.call_later(self.chance.uniform(*_STOP_S), self._loop.resume, life)

    async def _read(self) -> None:
        planned = self.planned
        options: dict[str, Any] = {
            "max_tokens": planned.max_tokens,
            "stop_tokens": planned.stop_tokens,
            "sampling": planned.sampling,
            **planned.wishes,
        }
        self._n_asks += 1
        async with AsyncClient(self._endpoints[self._n_asks % len(self._endpoints)]) as client:
            try:
                if self.chance.random() < 0.5 and not self._is_cancelling:
                    answer = await client.generate(planned.prompt, **options, **self._id)
                    self._take(answer.tokens, answer.text)
                    self.note(Kind.ENDED, reason=answer.reason)
                    return
                ids, text = list[int](), ""
                async with aclosing(client.stream(tokens=planned.prompt, **options, **self._id)) as pieces:
                    async for piece in pieces:
                        ids, text = ids + piece.ids, text + piece.text
                        self._take(ids, text)
                        self.has_left |= self._is_cancelling
                        if self.has_left or self.history.is_broken(planned.request):
                            return
            except (Unavailable, Overloaded):
                return
            except ClientError as error:
                self.note(Kind.REFUSED, detail=repr(error))

    def _take(self, ids: list[int], text: str) -> None:
        """Note what is new in the answer from its beginning; the rest must be what it was."""
        known = self.history.answer(self.planned.request)
        n_ids, n_characters = min(len(ids), len(known.ids)), min(len(text), len(known.text))
        if ids[:n_ids] != known.ids[:n_ids] or text[:n_characters] != known.text[:n_characters]:
            self.note(Kind.REFUSED, detail="the answer has other tokens or another text than before")
            return
        new_ids, new_text = ids[len(known.ids) :], text[len(known.text) :]
        if new_ids or new_text:
            self.note(Kind.TOKENS, first=len(known.ids), ids=new_ids, text=new_text)
