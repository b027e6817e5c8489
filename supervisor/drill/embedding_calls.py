"""Clients of the drill that ask for embeddings. Every vector is compared with the one from before the first fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import httpx

from messages.errors import ConfigError
from supervisor.drill.streams import DrillStream, StreamRequest

RightVectors = Mapping[str, Sequence[float]]  # by text

_TOLERANCE = 1e-4  # texts that are computed together are summed in another order
_AGAIN_S = 0.05
_FOR_NOW = 503  # the status of a server that cannot do it now


class RefusedForNow(Exception):
    """The server cannot do it now."""


async def learn_vectors(client: httpx.AsyncClient, options: StreamRequest, n_texts: int) -> RightVectors:
    """Texts of different lengths, and their vectors. Raises: ConfigError when the server computes none."""
    texts = [f"{index}: " + "water bear " * (1 + index % 7) for index in range(n_texts)]
    try:
        async with asyncio.timeout(options.deadline_s):
            return {text: await _vector_of(client, options, text) for text in texts}
    except (httpx.HTTPError, ValueError, RefusedForNow, TimeoutError) as error:
        raise ConfigError(f"embedder: expected a server that computes embeddings, got {error}") from None


async def call_again_and_again(
    client: httpx.AsyncClient,
    options: StreamRequest,
    stream: DrillStream,
    right: RightVectors,
    is_over: Callable[[], bool],
    repeats: bool = False,
) -> None:
    """Ask for the vector of `stream.prompt` until `is_over()`, at least once. Each answer is a piece.

    `repeats`: a call whose connection breaks, or that is refused for now, is sent again, as clients of a gateway that may die
    have to do. Whatever else a call ends with is noted in `stream.error`.
    """
    stream.began_s = time.monotonic()
    try:
        while not stream.arrivals_s or not is_over():
            async with asyncio.timeout(options.deadline_s):
                vector = await _asked(client, options, stream.prompt, repeats)
            stream.is_wrong = stream.is_wrong or not _is_close(vector, right[stream.prompt])
            stream.pieces.append(".")
            stream.arrivals_s.append(time.monotonic())
        stream.is_complete = True
    except TimeoutError:
        stream.error = f"no vector within {options.deadline_s:g} s"
    except (httpx.HTTPError, ValueError, RefusedForNow) as error:
        stream.error = f"{type(error).__name__}: {error}"[:200]


async def _asked(client: httpx.AsyncClient, options: StreamRequest, text: str, repeats: bool) -> Sequence[float]:
    while True:
        try:
            return await _vector_of(client, options, text)
        except (httpx.TransportError, RefusedForNow):
            if not repeats:
                raise
            await asyncio.sleep(_AGAIN_S)


async def _vector_of(client: httpx.AsyncClient, options: StreamRequest, text: str) -> Sequence[float]:
    """Ask the server once for the vector of a text. Raises: httpx.HTTPError; RefusedForNow; ValueError for another refusal."""
    answer = await client.post(f"{options.url}/v1/embeddings", json={"input": text})
    if answer.status_code == _FOR_NOW:
        raise RefusedForNow(f"HTTP {answer.status_code}: {answer.text[:150]}")
    if answer.status_code != 200:
        raise ValueError(f"HTTP {answer.status_code}: {answer.text[:150]}")
    return answer.json()["data"][0]["embedding"]


def _is_close(vector: Sequence[float], right: Sequence[float]) -> bool:
    return len(vector) == len(right) and all(abs(a - b) <= _TOLERANCE for a, b in zip(vector, right, strict=True))
