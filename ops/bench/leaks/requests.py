"""Requests of every kind, one after the other and many at a time: streamed, whole, several sequences, cancelled, refused,
repeated under one key, over HTTP and over ZeroMQ. Their tokens are compared with the hash chain's own formula."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

from gpu_workers.hash_chain import hash_chain_tokens
from messages.client import AsyncClient
from messages.errors import ClientError
from supervisor.bench.http.response import BrokenResponse, HttpResponse

_DEADLINE_S = 120.0
_VOCABULARY = 32_768
_RETRY_S = 0.05
_FOR_NOW = (429, 503, 504)  # statuses of a server that cannot do it now
_FAILURES = (OSError, EOFError, TimeoutError, ClientError, BrokenResponse)


class WrongAnswer(Exception):
    """An answer that no fault explains."""


class Line:
    """One HTTP connection, made when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, body: bytes, headers: str = "", *, leave_after: int = 0) -> tuple[int, bytes]:
        """The status and the body of the answer. With `leave_after` the client hangs up after so many bytes.

        Raises: OSError, EOFError when the connection is cut; BrokenResponse.
        """
        reader, writer = await self._connected()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        writer.write(head.encode() + body)
        response, parts, n_bytes = HttpResponse(), [], 0
        while not response.is_complete:
            data = await reader.read(1 << 16)
            if not data:
                raise EOFError("the connection ended within an answer")
            parts.append(response.feed(data))
            n_bytes += len(data)
            if leave_after and n_bytes >= leave_after:
                self.close()
                break
        if not response.keeps_connection:
            self.close()
        return response.status, b"".join(parts)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self._reader, self._writer

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


class RequestMix:
    """Clients that send requests of all kinds. `done`: how many of each kind have ended; `failures`: those that a death cut."""

    def __init__(self, port: int, client: AsyncClient, seed: int, faults_expected: bool = False) -> None:
        self.faults_expected = faults_expected
        self.done: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._port, self._client, self._chance = port, client, random.Random(seed)
        self._number = 0
        self._kinds = [self._whole, self._whole, self._streamed, self._several, self._batch, self._cancelled, self._refused,
                       self._repeated, self._zmq, self._zmq, self._zmq_cancelled, self._zmq_refused]  # fmt: skip

    @property
    def n_begun(self) -> int:
        """Requests that have been sent."""
        return self._number

    async def run_until(self, is_over: Callable[[], bool], at_once: int) -> None:
        """Requests until `is_over()`. Raises: WrongAnswer."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._client_until(is_over))

    async def _client_until(self, is_over: Callable[[], bool]) -> None:
        line = Line(self._port)
        while not is_over():
            self._number += 1
            kind = self._chance.choice(self._kinds)
            name = kind.__name__.lstrip("_")
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    await kind(line, [self._chance.randrange(_VOCABULARY) for _ in range(self._chance.randrange(1, 24))])
                self.done[name] += 1
            except _FAILURES as error:
                line.close()
                if not self.faults_expected:
                    raise WrongAnswer(f"{name}: {type(error).__name__} {error}") from error
                self.failures[f"{name}: {type(error).__name__}"] += 1
                await asyncio.sleep(_RETRY_S)
        line.close()

    async def _whole(self, line: Line, prompt: list[int]) -> None:
        reply = await self._ask(line, "/v1/generate", {"tokens": prompt, "max_tokens": 3, "temperature": 0})
        self._compare(reply["tokens"], prompt, 3)

    async def _streamed(self, line: Line, prompt: list[int]) -> None:
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": True}
        status, answer = await line.ask("/v1/completions", json.dumps(body).encode())
        self._check(status, 200, answer)
        if not answer.endswith(b"data: [DONE]\n\n") and b"data: [DONE]" not in answer:
            raise WrongAnswer(f"a stream without its end: {answer[-200:]!r}")

    async def _several(self, line: Line, prompt: list[int]) -> None:
        body = {"prompt": prompt, "max_tokens": 2, "n": 3, "temperature": 1.0, "seed": 5}
        reply = await self._ask(line, "/v1/completions", body)
        if len(reply["choices"]) != 3:
            raise WrongAnswer(f"expected 3 choices, got {len(reply['choices'])}")

    async def _batch(self, line: Line, prompt: list[int]) -> None:
        await self._ask(line, "/v1/batch", {"tokens": [prompt, [*prompt, 1]], "max_tokens": 2, "temperature": 0})

    async def _cancelled(self, line: Line, prompt: list[int]) -> None:
        body = {"prompt": prompt, "max_tokens": 400, "temperature": 0, "stream": True}
        await line.ask("/v1/completions", json.dumps(body).encode(), leave_after=400)

    async def _refused(self, line: Line, prompt: list[int]) -> None:
        body = self._chance.choice(
            (b"{", b'{"tokens": [], "max_tokens": 1}', b'{"tokens": [1], "max_tokens": -1}', b'{"n": "x"}')
        )
        status, answer = await line.ask("/v1/generate", body)
        self._check(status, 400, answer)

    async def _repeated(self, line: Line, prompt: list[int]) -> None:
        body = json.dumps({"tokens": prompt, "max_tokens": 2, "temperature": 0}).encode()
        headers = f"Idempotency-Key: key-{self._chance.getrandbits(64):016x}\r\n"
        answers = [await self._ask_until_answered(line, body, headers) for _ in range(2)]
        for status, answer in answers:
            self._check(status, 200, answer)
            self._compare(json.loads(answer)["tokens"], prompt, 2)

    async def _ask_until_answered(self, line: Line, body: bytes, headers: str) -> tuple[int, bytes]:
        """Ask as clients with an idempotency key do: after a cut connection or a refusal for now, send the same again."""
        while True:
            with suppress(OSError, EOFError, BrokenResponse):
                status, answer = await line.ask("/v1/generate", body, headers)
                if status not in _FOR_NOW:
                    return status, answer
            if not self.faults_expected:
                raise WrongAnswer("expected an answer while nothing is killed")
            line.close()
            await asyncio.sleep(_RETRY_S)

    async def _zmq(self, line: Line, prompt: list[int]) -> None:
        del line
        answer = await self._client.generate(prompt, max_tokens=3, temperature=0.0, deadline_s=_DEADLINE_S)
        self._compare(list(answer.tokens), prompt, 3)

    async def _zmq_cancelled(self, line: Line, prompt: list[int]) -> None:
        del line
        async with aclosing(self._client.stream(tokens=prompt, max_tokens=400, deadline_s=_DEADLINE_S)) as stream:
            async for _ in stream:
                break

    async def _zmq_refused(self, line: Line, prompt: list[int]) -> None:
        del line
        with suppress(ClientError):
            await self._client.generate([_VOCABULARY + 1, *prompt], max_tokens=3, deadline_s=_DEADLINE_S)
            raise WrongAnswer("expected a refusal of a token id that does not exist")

    async def _ask(self, line: Line, path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = await line.ask(path, json.dumps(body).encode())
        self._check(status, 200, answer)
        return json.loads(answer)

    def _check(self, status: int, expected: int, answer: bytes) -> None:
        if status in _FOR_NOW and self.faults_expected:
            raise EOFError(f"status {status}")
        if status != expected:
            raise WrongAnswer(f"expected status {expected}, got {status}: {answer[:300]!r}")

    def _compare(self, tokens: list[int], prompt: list[int], n_tokens: int) -> None:
        right = hash_chain_tokens(prompt, n_tokens, 0, _VOCABULARY)
        if tokens != right:
            raise WrongAnswer(f"expected {right} after {prompt}, got {tokens}")
