"""Questions to the cache directory: which kept answer has the most similar question."""

from __future__ import annotations

import asyncio

import numpy as np

from actors.gateway.dispatch.post import Post, send_now
from messages.caches.similar import FindSimilar, SimilarFound
from messages.wire.arrays import float32s

_NOTHING = SimilarFound(query=0)


class SimilarQueries:
    """The open questions of one gateway."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._open: dict[int, asyncio.Future[SimilarFound]] = {}
        self._next_query = 1

    async def find(self, circle: bytes, vector: np.ndarray, least: float) -> SimilarFound:
        """What the directory answers; nothing if there is none to ask. The caller sets the deadline: a lost answer never
        comes."""
        if not (directories := self._post.living("cache_directory")):
            return _NOTHING
        query, self._next_query = self._next_query, self._next_query + 1
        message = FindSimilar(query=query, circle=circle, vector=float32s(vector), least=least)
        if not send_now(self._post, directories[0], message):
            return _NOTHING
        found = self._open[query] = asyncio.get_running_loop().create_future()
        try:
            return await found
        finally:
            del self._open[query]

    def answered(self, message: SimilarFound) -> None:
        """The directory has answered."""
        found = self._open.get(int(message.query))
        if found is not None and not found.done():
            found.set_result(message)

    def directory_down(self) -> None:
        """The directory has died, and will not answer."""
        for found in self._open.values():
            if not found.done():
                found.set_result(_NOTHING)
