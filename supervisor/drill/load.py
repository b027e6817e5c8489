"""What clients ask of the server in one round of a drill: streams of text, or embeddings where the embedder is harmed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import httpx

from supervisor.drill.embedding_calls import RightVectors, call_again_and_again, learn_vectors
from supervisor.drill.faults import PlannedFault
from supervisor.drill.readers import Follow
from supervisor.drill.streams import DrillStream, StreamRequest, follow, is_answering

_EMBEDDER = "embedder"


class RoundLoad(Protocol):
    """The clients of one round."""

    streams: Sequence[DrillStream]

    def begin(self) -> list[asyncio.Task[None]]:
        """Let all clients begin."""
        ...

    async def is_answering(self) -> bool:
        """Whether the server answers a new request now."""
        ...

    def end(self) -> None:
        """The fault and its pause are over."""
        ...


class TextLoad(RoundLoad):
    """Streams of text, which end by themselves."""

    def __init__(
        self, client: httpx.AsyncClient, options: StreamRequest, prompts: Sequence[str], follow: Follow = follow
    ) -> None:
        self._client, self._options, self._to_its_end = client, options, follow
        self.streams = [DrillStream(prompt) for prompt in prompts]

    def begin(self) -> list[asyncio.Task[None]]:
        """One request of each client."""
        return [asyncio.ensure_future(self._to_its_end(self._options, stream)) for stream in self.streams]

    async def is_answering(self) -> bool:
        """Whether a request of one token is answered."""
        return await is_answering(self._client, self._options)

    def end(self) -> None:
        """Does nothing: streams go on to their ends."""


class EmbeddingLoad(RoundLoad):
    """Clients that ask for embeddings, one call after the other, until the fault is over."""

    def __init__(self, client: httpx.AsyncClient, options: StreamRequest, right: RightVectors) -> None:
        self._client, self._options, self._right = client, options, right
        self._is_over = False
        self.streams = [DrillStream(text) for text in right]

    def begin(self) -> list[asyncio.Task[None]]:
        """The first call of each client."""
        return [asyncio.create_task(self._follow(stream)) for stream in self.streams]

    async def is_answering(self) -> bool:
        """Whether a call is answered."""
        probe = DrillStream(next(iter(self._right)))
        await call_again_and_again(self._client, self._options, probe, self._right, lambda: True)
        return not probe.error

    def end(self) -> None:
        """No client begins another call."""
        self._is_over = True

    async def _follow(self, stream: DrillStream) -> None:
        await call_again_and_again(self._client, self._options, stream, self._right, lambda: self._is_over)


def harms_embedder(fault: PlannedFault) -> bool:
    """Whether this fault is one of the process that computes embeddings."""
    return fault.target.partition("/")[0] == _EMBEDDER


async def vectors_for(
    client: httpx.AsyncClient, options: StreamRequest, faults: Sequence[PlannedFault], n_clients: int
) -> Mapping[str, Sequence[float]]:
    """The right vectors, if one of these faults needs them. Raises: ConfigError."""
    if not any(map(harms_embedder, faults)):
        return {}
    return await learn_vectors(client, options, n_clients)
