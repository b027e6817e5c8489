"""Clients of the drill: streams over the OpenAI completions API of any server. They never reconnect."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx

_WORDS = ("river", "seven", "copper", "window", "paper", "north", "candle", "orbit", "garden", "stone", "mirror", "velvet")
_PROBE_S = 10.0
_AGAIN_S = 0.05
_WHOLE = ("stop", "length")  # finish reasons of an answer that its server did not give up


def bearer(api_key: str) -> dict[str, str]:
    """The header with an API key; "": there is none."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


@dataclass(frozen=True)
class StreamRequest:
    """What each client asks for."""

    url: str  # of the server, without /v1
    model: str
    prompt_words: int
    max_tokens: int
    deadline_s: float
    ignores_end: bool  # ask for all `max_tokens` (a field that vLLM, SGLang and this server know)
    api_key: str  # "": none

    @property
    def headers(self) -> dict[str, str]:
        """Who asks, for every call."""
        return bearer(self.api_key)


@dataclass
class DrillStream:
    """One answer as its client saw it. Times are seconds of one monotonic clock."""

    prompt: str
    began_s: float = 0.0
    pieces: list[str] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)  # of each piece
    is_complete: bool = False  # it ended with the finish reason of a whole answer
    error: str = ""
    seed: int = 0  # 0: greedy
    key: str = ""  # its Idempotency-Key; "": none
    is_accepted: bool = False  # the beginning of an answer has come
    is_wrong: bool = False  # its client has seen an answer that is not the right one

    @property
    def text(self) -> str:
        """Everything that has come."""
        return "".join(self.pieces)


def prompts_of(n: int, n_words: int, seed: int) -> list[str]:
    """`n` prompts of random words. No two of them begin alike."""
    chance = random.Random(seed)
    return [f"{index}: " + " ".join(chance.choice(_WORDS) for _ in range(n_words)) for index in range(n)]


async def find_model(client: httpx.AsyncClient, url: str) -> str:
    """The first model that the server names. Raises: httpx.HTTPError; ValueError without one."""
    answer = await client.get(f"{url}/v1/models")
    answer.raise_for_status()
    models = answer.json().get("data") or []
    if not models:
        raise ValueError(f"model: expected one in {url}/v1/models, got none; name it with --model")
    return models[0]["id"]


async def follow(client: httpx.AsyncClient, options: StreamRequest, stream: DrillStream) -> None:
    """Stream one answer to its end. Whatever cuts it is noted in `stream.error`."""
    stream.began_s = time.monotonic()
    try:
        async with asyncio.timeout(options.deadline_s):
            async for piece, is_last in _pieces(client, options, stream):
                if piece:
                    stream.pieces.append(piece)
                    stream.arrivals_s.append(time.monotonic())
                stream.is_complete = stream.is_complete or is_last
    except TimeoutError:
        stream.error = f"not finished within {options.deadline_s:g} s"
    except (httpx.HTTPError, ValueError) as error:
        stream.error = f"{type(error).__name__}: {error}"[:200]
    if not stream.is_complete and not stream.error:
        stream.error = "the stream ended without the finish reason of a whole answer"


async def follow_accepted(client: httpx.AsyncClient, options: StreamRequest, stream: DrillStream) -> None:
    """Follow one stream as `follow` does, but send the request again if no part of its answer has come: it was not accepted."""
    until_s = time.monotonic() + options.deadline_s
    while True:
        await follow(client, options, stream)
        if stream.is_accepted or not stream.error or time.monotonic() > until_s:
            return
        stream.error = ""
        await asyncio.sleep(_AGAIN_S)


async def is_answering(client: httpx.AsyncClient, options: StreamRequest) -> bool:
    """Whether the server completes a request of one token now."""
    body = {"model": options.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
    try:
        answer = await client.post(f"{options.url}/v1/completions", json=body, timeout=_PROBE_S)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


async def _pieces(client: httpx.AsyncClient, options: StreamRequest, stream: DrillStream) -> AsyncIterator[tuple[str, bool]]:
    """(new text, whether the answer is whole with it) of each event. Raises: httpx.HTTPError; ValueError for an error."""
    body = {
        "model": options.model,
        "prompt": stream.prompt,
        "max_tokens": options.max_tokens,
        **({"temperature": 1, "seed": stream.seed} if stream.seed else {"temperature": 0}),
        "stream": True,
        **({"ignore_eos": True} if options.ignores_end else {}),
    }
    headers = {"Idempotency-Key": stream.key} if stream.key else {}
    async with client.stream("POST", f"{options.url}/v1/completions", json=body, headers=headers) as answer:
        if answer.status_code != 200:
            await answer.aread()
            raise ValueError(f"HTTP {answer.status_code}: {answer.text[:150]}")
        stream.is_accepted = True
        async for line in answer.aiter_lines():
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                return
            event = json.loads(data)
            if "error" in event:
                raise ValueError(f"error in the stream: {str(event['error'])[:150]}")
            for choice in event.get("choices", ()):
                yield choice.get("text") or "", choice.get("finish_reason") in _WHOLE
