"""Clients of a drill that ask for embeddings: what they call right, wrong and lost."""

from __future__ import annotations

import httpx
import pytest

from messages.errors import ConfigError
from supervisor.drill.embedding_calls import call_again_and_again, learn_vectors
from supervisor.drill.faults import parse_fault
from supervisor.drill.figures import outcome_of
from supervisor.drill.load import EmbeddingLoad, harms_embedder
from supervisor.drill.streams import DrillStream, StreamRequest

OPTIONS = StreamRequest("http://server", "m", 1, 1, 5.0, ignores_end=True, api_key="")
RIGHT = {"text": [0.6, 0.8]}


def client_of(*answers: list[float] | int | Exception) -> httpx.AsyncClient:
    """A server that gives these answers: a vector, a status, or an error of the connection; the last one again and again."""
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        now = next(left, answers[-1])
        if isinstance(now, Exception):
            raise now
        if isinstance(now, int):
            return httpx.Response(now, text="no")
        return httpx.Response(200, json={"data": [{"embedding": now}]})

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def called(client: httpx.AsyncClient, n_calls: int, repeats: bool = False) -> DrillStream:
    """What one client has seen in so many calls."""
    stream = DrillStream("text")
    async with client:
        await call_again_and_again(client, OPTIONS, stream, RIGHT, lambda: len(stream.pieces) >= n_calls, repeats)
    return stream


async def test_each_right_vector_is_a_piece() -> None:
    stream = await called(client_of([0.6, 0.8], [0.6, 0.800001], [0.6, 0.8]), 3)
    assert (outcome_of(stream, {}), len(stream.arrivals_s)) == ("right", 3)


@pytest.mark.parametrize("wrong", [[0.6, 0.81], [0.6], []])
async def test_another_vector_is_wrong(wrong: list[float]) -> None:
    assert outcome_of(await called(client_of([0.6, 0.8], wrong, [0.6, 0.8]), 3), {}) == "wrong"


@pytest.mark.parametrize("failure", [503, 500, httpx.ReadError("cut")])
async def test_a_call_that_fails_is_lost(failure: int | Exception) -> None:
    stream = await called(client_of([0.6, 0.8], failure), 3)
    assert (outcome_of(stream, {}), len(stream.pieces)) == ("lost", 1)


@pytest.mark.parametrize(("failure", "outcome"), [(503, "right"), (500, "lost"), (httpx.ReadError("cut"), "right")])
async def test_a_client_that_repeats_survives_what_a_dying_gateway_does(failure: int | Exception, outcome: str) -> None:
    stream = await called(client_of([0.6, 0.8], failure, [0.6, 0.8]), 3, repeats=True)
    assert outcome_of(stream, {}) == outcome


async def test_the_right_vectors_are_learned_first_and_a_server_without_embedder_is_named() -> None:
    async with client_of([0.6, 0.8]) as client:
        vectors = await learn_vectors(client, OPTIONS, 3)
        assert list(vectors.values()) == [[0.6, 0.8]] * 3
        load = EmbeddingLoad(client, OPTIONS, vectors)
        assert await load.is_answering()
        work = load.begin()
        load.end()
        for task in work:
            await task
        assert [outcome_of(stream, {}) for stream in load.streams] == ["right"] * 3
    async with client_of(404) as client:
        with pytest.raises(ConfigError, match="embedder: expected a server that computes embeddings, got HTTP 404"):
            await learn_vectors(client, OPTIONS, 3)


def test_only_faults_of_the_embedder_are_met_by_calls_for_embeddings() -> None:
    texts = ("kill:embedder", "pause:embedder/0:5", "kill:gateway", "kill:pid=1", "run:true")
    assert [harms_embedder(parse_fault(text)) for text in texts] == [True, True, False, False, False]
