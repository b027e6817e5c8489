"""Look-ups of one gateway: how many there are at a time, and what becomes of them when a process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from prometheus_client import CollectorRegistry

from actors.gateway.dispatch.post import Post
from actors.gateway.requests.refusals import Refusal
from actors.gateway.similar_answers.question import Asked, Question
from actors.gateway.similar_answers.similar_cache import SimilarCache
from actors.gateway.similar_answers.similar_queries import SimilarQueries
from messages.caches.similar import FindSimilar, SimilarFound
from messages.wire.arrays import int32s
from messages.wire.message import NO_TRACE, Message
from tests.support.waiting import next_turn

QUESTION = Question(b"1" * 16, "what is it", 0.9, True)


class FakePost(Post):
    """Everybody lives; messages are kept."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, name: str, message: Message, trace: bytes = NO_TRACE) -> None:
        self.sent.append(message)

    def living(self, role: str) -> list[str]:
        return [f"{role}/0"]

    def incarnation_of(self, name: str) -> int:
        return 1

    def now_s(self) -> float:
        return 5.0

    def wall_s(self) -> float:
        return 5.0

    def later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class Bench:
    """A cache whose vectors come when the test says so."""

    def __init__(self) -> None:
        self.post, self.registry = FakePost(), CollectorRegistry()
        self.queries = SimilarQueries(self.post)
        self.cache = SimilarCache(self.post, self.queries, self._vector_of, 20.0, self.registry)
        self.vectors: list[asyncio.Future[np.ndarray]] = []

    async def _vector_of(self, text: str) -> np.ndarray:
        self.vectors.append(asyncio.get_running_loop().create_future())
        return await self.vectors[-1]

    def n(self, result: str) -> float:
        """How many look-ups had this result."""
        return self.registry.get_sample_value("tardigrade_similar_requests_total", {"result": result}) or 0.0

    async def asking(self) -> asyncio.Task[Asked | None]:
        """A look-up that waits for its vector."""
        before = len(self.vectors)
        task = asyncio.ensure_future(self.cache.look_up(QUESTION))
        while len(self.vectors) == before:
            await next_turn()
        return task

    async def sent_query(self) -> FindSimilar:
        """The question to the directory, once it was sent."""
        while not self.post.sent:
            await next_turn()
        message = self.post.sent[-1]
        assert isinstance(message, FindSimilar)
        return message


async def test_a_hit_has_the_answer_and_its_similarity() -> None:
    bench = Bench()
    task = await bench.asking()
    bench.vectors[0].set_result(np.ones(3, np.float32))
    query = await bench.sent_query()
    assert (query.circle, query.least, query.vector.tolist()) == (QUESTION.circle, 0.9, [1.0, 1.0, 1.0])
    bench.queries.answered(SimilarFound(query=99, has_answer=True))  # of a question that nobody asks any more
    bench.queries.answered(SimilarFound(query=query.query, has_answer=True, similarity=0.95, ids=int32s([4, 5])))
    asked = await task
    assert asked is not None
    assert asked.answer is not None
    assert (asked.answer.sequences[0].ids, asked.similarity, bench.n("hit")) == (int32s([4, 5]).tobytes(), 0.95, 1)


async def test_so_many_vectors_are_computed_at_a_time() -> None:
    bench = Bench()
    tasks = [await bench.asking() for _ in range(64)]
    assert await bench.cache.look_up(QUESTION) is None
    assert (bench.n("skipped"), bench.cache.n_open) == (1, 64)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert bench.cache.n_open == 64  # clients have left, and their vectors are computed still
    for vector in bench.vectors:
        vector.set_result(np.ones(3, np.float32))
    while bench.cache.n_open:
        await next_turn()


async def test_the_death_of_the_directory_ends_a_look_up() -> None:
    bench = Bench()
    task = await bench.asking()
    bench.vectors[0].set_result(np.ones(3, np.float32))
    await bench.sent_query()
    bench.queries.directory_down()
    asked = await task
    assert asked is not None
    assert (asked.answer, bench.n("miss")) == (None, 1)


async def test_a_text_that_the_embedding_model_refuses_is_computed() -> None:
    bench = Bench()
    task = await bench.asking()
    bench.vectors[0].set_exception(Refusal("too_long", "text: too long"))
    assert await task is None
    assert bench.n("skipped") == 1
