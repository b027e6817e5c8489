"""Clients of a simulated server that ask for vectors, as the gateway's APIs do, and ask again after the death of a gateway."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from actors.gateway.requests.refusals import Refusal
from tests.support.simulation.clients.client import RETRYABLE
from tests.support.simulation.embedding import vector_of
from tests.support.simulation.processes import SimulatedProcess
from tests.support.simulation.virtual_loop import VirtualLoop

_ASKS_S = (0.0, 6.0)
_AGAIN_S = (0.01, 0.2)
_N_TEXTS, _N_TOKENS = 100, 40  # the most of a call, and of a text


class EmbeddingClient:
    """Asks once for the vectors of some texts. `problems`: what it got that it should not."""

    def __init__(
        self, number: int, gateway: str, chance: random.Random, loop: VirtualLoop, find_gateway: Callable[[str], Any]
    ) -> None:
        self._number, self._gateway, self._chance = number, gateway, chance
        self._loop, self._find_gateway = loop, find_gateway
        n_texts = chance.randrange(1, _N_TEXTS)
        self._texts = [self._text() for _ in range(n_texts)]
        self.problems: list[str] = []
        self.is_done = False

    async def run(self) -> None:
        """Ask until the answer has come."""
        await asyncio.sleep(self._chance.uniform(*_ASKS_S))
        while not self.is_done and not self.problems:
            process: SimulatedProcess | None = self._find_gateway(self._gateway)
            if process is not None:
                self._take(await self._ask(process))
            await asyncio.sleep(self._chance.uniform(*_AGAIN_S))

    async def _ask(self, process: SimulatedProcess) -> np.ndarray | Refusal | None:
        """The vectors, or a refusal; None if the gateway has died."""
        answer: asyncio.Future[Any] = self._loop.create_future()

        def tell(what: Any) -> None:
            if not answer.done():
                answer.set_result(what)

        async def serve() -> None:
            try:
                tell(await process.actor.embedding_dispatcher.embed(self._texts))
            except Refusal as refusal:
                tell(refusal)

        process.on_death.append(lambda: tell(None))
        task = process.context.run(self._loop.create_task, serve())
        try:
            return await answer
        finally:
            with suppress(asyncio.InvalidStateError):
                process.context.run(self._loop.call_soon, task.cancel)

    def _take(self, answer: np.ndarray | Refusal | None) -> None:
        if isinstance(answer, Refusal):
            if answer.code not in RETRYABLE:
                self.problems.append(f"embedding-{self._number}: refused: {answer.code}: {answer.detail}")
        elif answer is not None:
            self.is_done = True
            if not np.array_equal(answer, np.stack([vector_of(text) for text in self._texts])):
                self.problems.append(f"embedding-{self._number}: wrong vectors")

    def _text(self) -> np.ndarray:
        return np.array([self._chance.randrange(1000) for _ in range(self._chance.randrange(1, _N_TOKENS))], np.int32)
