"""Looks up answers to similar questions, and gives answers to the cache directory, for one gateway.

A look-up has a deadline. When it is late, or the embedder or the directory is not there, the request is computed as without
this cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

import numpy as np
from prometheus_client import CollectorRegistry, Counter

from actors.gateway.dispatch.post import Post, send_now
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import Request
from actors.gateway.requests.similar_key import SimilarKey
from actors.gateway.similar_answers.question import Asked, Question
from actors.gateway.similar_answers.similar_queries import SimilarQueries
from actors.pages.prompt_start import START_BYTES
from messages.caches.equal import MAX_ANSWER_TOKENS, KeptAnswer, KeptSequence
from messages.caches.similar import KeepSimilar, SimilarFound
from messages.metrics import Histogram
from messages.outcomes import EndReason
from messages.wire.arrays import float32s, int32s

_MOST_OPEN = 64  # vectors at a time: more of them would only wait for each other
_LONGEST_VECTOR_S = 30.0  # after that a vector is given up
_COMPLETE: tuple[EndReason, ...] = ("stop", "length")
_WAITS_S = (0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)

VectorOf = Callable[[str], Awaitable[np.ndarray]]  # text -> float32 [dimensions]. Raises: Refusal.


class LookUp(StrEnum):
    """How a look-up ended."""

    HIT = "hit"
    MISS = "miss"
    REFRESH = "refresh"  # the client wants it computed; its vector is needed to keep the answer
    LATE = "late"  # the deadline has passed
    SKIPPED = "skipped"  # too many others, a process that is not there, or a text that the embedding model cannot take


class SimilarCache:
    """The similar answers, as one gateway reaches them. `wait_s`: longest wait of a request for one."""

    def __init__(
        self, post: Post, queries: SimilarQueries, vector_of: VectorOf, wait_s: float, registry: CollectorRegistry
    ) -> None:
        self._post, self._queries, self._vector_of, self._wait_s = post, queries, vector_of, wait_s
        self.n_open = 0  # vectors that are being computed
        name = "tardigrade_similar_requests"
        self._results = Counter(name, "Requests that could have a similar answer, by result.", ["result"], registry=registry)
        self._waits = Histogram("tardigrade_similar_wait_seconds", "Seconds that a look-up took.", _WAITS_S)
        registry.register(self._waits)

    async def look_up(self, question: Question) -> Asked | None:
        """What is known of a question in time; None: it is not looked up, and its answer is not kept."""
        if self.n_open >= _MOST_OPEN or not self._post.living("embedder") or not self._post.living("cache_directory"):
            return self._end(LookUp.SKIPPED, None)
        began_s, key = self._post.now_s(), SimilarKey(question.circle, self._begin_vector(question.text))
        try:
            async with asyncio.timeout(self._wait_s):
                vector = await asyncio.shield(key.vector)  # one that is late is of use for the next question
                found = await self._queries.find(key.circle, vector, question.least) if question.may_find else None
        except TimeoutError:
            return self._end(LookUp.LATE, Asked(key))
        except Refusal:
            return self._end(LookUp.SKIPPED, None)
        finally:
            self._waits.observe(self._post.now_s() - began_s)
        if found is None:
            return self._end(LookUp.REFRESH, Asked(key))
        if not found.has_answer:
            return self._end(LookUp.MISS, Asked(key))
        return self._end(LookUp.HIT, Asked(key, _kept(found), found.similarity))

    def keep(self, request: Request) -> None:
        """Give the answer of a request that is over to the directory, unless it is incomplete."""
        key, directories = request.similar_key, self._post.living("cache_directory")
        sequence = request.sequences[0]
        vector = None if key is None else key.known_vector
        if key is None or vector is None or not directories or request.n_generated > MAX_ANSWER_TOKENS:
            return
        if sequence.ended is None or sequence.ended.reason not in _COMPLETE:
            return
        message = KeepSimilar(
            circle=key.circle,
            vector=float32s(vector),
            ids=int32s(sequence.ids),
            reason=sequence.ended.reason,
            scope=request.spec.terms.cache_scope,
            start=int32s(np.frombuffer(request.spec.prompts[0][:START_BYTES], "<i4")),
            began_s=request.spec.created_s,
            cache_share=request.spec.terms.cache_share,
        )
        send_now(self._post, directories[0], message)

    def _begin_vector(self, text: str) -> asyncio.Task[np.ndarray]:
        """Begin to compute a vector. It counts as open until it has come, or it is given up."""
        self.n_open += 1
        task = asyncio.ensure_future(self._vector_in_time(text))
        task.add_done_callback(self._vector_done)
        return task

    async def _vector_in_time(self, text: str) -> np.ndarray:
        async with asyncio.timeout(_LONGEST_VECTOR_S):
            return await self._vector_of(text)

    def _vector_done(self, task: asyncio.Task[np.ndarray]) -> None:
        self.n_open -= 1
        if not task.cancelled():
            task.exception()  # whoever waits for it has it too

    def _end(self, result: LookUp, asked: Asked | None) -> Asked | None:
        self._results.labels(result.value).inc()
        return asked


def _kept(found: SimilarFound) -> KeptAnswer:
    """An answer of the directory in the form of one that this gateway keeps. No prompt token of it was cached: its prompt was
    another one."""
    return KeptAnswer(sequences=(KeptSequence(ids=found.ids.tobytes(), reason=found.reason),))
