"""Clients of the drill: streams over the OpenAI completions API of any server. They never reconnect."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path

import httpx

from messages.errors import ConfigError
from supervisor.bench.http.completion_events import MeasuredAnswer
from supervisor.bench.http.stream import ConnectionPool, Target

_WORDS = ("river", "seven", "copper", "window", "paper", "north", "candle", "orbit", "garden", "stone", "mirror", "velvet")
_PROBE_S = 10.0
_AGAIN_S = 0.05
WHOLE = ("stop", "length")  # finish reasons of an answer that its server did not give up
_SHOWN_CHARS = 200


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
    more_headers: Mapping[str, str] = field(default_factory=dict)
    tls_ca: Path | None = None  # who has signed the server's certificate; None: whom the system trusts

    @property
    def headers(self) -> dict[str, str]:
        """Who asks and how, for every call."""
        return {**bearer(self.api_key), **self.more_headers}


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


@lru_cache
def trusted(tls_ca: Path | None) -> ssl.SSLContext:
    """Whom https trusts. Raises: ConfigError."""
    try:
        return ssl.create_default_context(cafile=tls_ca)
    except OSError as error:
        raise ConfigError(f"tls_ca: expected certificates in PEM, got {tls_ca} ({error})") from None


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


@dataclass
class _FollowedAnswer(MeasuredAnswer):
    """Fills a stream while its answer comes."""

    stream: DrillStream = field(default_factory=lambda: DrillStream(""))

    def begin(self, status: int) -> None:
        """The server has accepted the request, or refused it."""
        super().begin(status)
        self.stream.is_accepted = status == HTTPStatus.OK

    def handle(self, data: bytes, now_s: float) -> None:
        """One event. Its time is that of the monotonic clock on Linux, as all times of a stream are."""
        super().handle(data, now_s)
        self.stream.arrivals_s.extend(self.text_s[len(self.stream.arrivals_s) :])
        self.stream.is_complete = self.finish in WHOLE and not self.error

    @property
    def complaint(self) -> str:
        """What has cut the stream; "": nothing."""
        if self.error.startswith("http_"):
            return f"HTTP {self.status}: {self.detail[:_SHOWN_CHARS]}"
        kinds = {"error_event": "error in the stream", "cut": "cut", "connect": "not connected"}
        return f"{kinds.get(self.error, self.error)}: {self.detail[:_SHOWN_CHARS]}" if self.error else ""


async def follow(options: StreamRequest, stream: DrillStream) -> None:
    """Stream one answer to its end, on a connection of its own. Whatever cuts it is noted in `stream.error`.

    The reader is that of the load tool: a general HTTP client reads a tenth of what hundreds of fast streams bring, and its
    delay would be measured as a pause of the server.
    """
    stream.began_s = time.monotonic()
    key = {"Idempotency-Key": stream.key} if stream.key else {}
    tls = trusted(options.tls_ca) if options.url.startswith("https") else None
    pool = ConnectionPool(Target(options.url, timeout_s=options.deadline_s, headers=options.headers | key, tls=tls))
    answer = _FollowedAnswer(stream.began_s, text=stream.pieces, stream=stream)
    try:
        async with asyncio.timeout(options.deadline_s):
            await pool.ask(pool.target.request_bytes("/v1/completions", body_of(options, stream)), answer)
    except TimeoutError:
        answer.fail("timeout")
    finally:
        pool.close()
    stream.error = f"not finished within {options.deadline_s:g} s" if answer.error == "timeout" else answer.complaint
    if not stream.is_complete and not stream.error:
        stream.error = "the stream ended without the finish reason of a whole answer"


def body_of(options: StreamRequest, stream: DrillStream) -> dict[str, object]:
    """The request for this stream, as `/v1/completions` takes it."""
    return {
        "model": options.model,
        "prompt": stream.prompt,
        "max_tokens": options.max_tokens,
        **({"temperature": 1, "seed": stream.seed} if stream.seed else {"temperature": 0}),
        "stream": True,
        **({"ignore_eos": True} if options.ignores_end else {}),
    }


async def follow_accepted(options: StreamRequest, stream: DrillStream) -> None:
    """Follow one stream as `follow` does, but send the request again if no part of its answer has come: it was not accepted."""
    until_s = time.monotonic() + options.deadline_s
    while True:
        await follow(options, stream)
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
