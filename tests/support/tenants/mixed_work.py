"""Requests of every kind that one tenant asks of a real server, each with the tokens that its client has got."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import httpx

N_TOKENS = 150
PROMPT = [5, 6, 7]
_LOST = (httpx.TransportError,)


@dataclass
class MixedWork:
    """The requests of one tenant. `n_got`: tokens of prompts and answers that have come whole. `n_unsure`: at most so many more
    may have been used, by requests whose connection has ended without an answer. `lost`: how many of those, by kind."""

    http: httpx.AsyncClient
    key: str
    n_got: int = 0
    n_unsure: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    has_begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    @property
    def headers(self) -> dict[str, str]:
        """The key of the tenant."""
        return {"Authorization": f"Bearer {self.key}"}

    async def stream(self, name: str = "") -> None:
        """A stream over one connection, with an `Idempotency-Key` or without one."""
        body = {"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0, "stream": True}
        headers = self.headers | ({"Idempotency-Key": name} if name else {})
        n_lines = 0
        try:
            async with self.http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
                assert answer.status_code == 200, await answer.aread()
                assert answer.headers["x-ratelimit-limit-tokens"] == "1000000"
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        n_lines += 1
                        if n_lines == 10:
                            self.has_begun.release()
        finally:
            self.has_begun.release()
        assert n_lines == N_TOKENS + 1, "each token, and the chunk of the end"
        self.n_got += len(PROMPT) + N_TOKENS

    async def whole(self) -> None:
        """A whole answer without a key."""
        body = {"prompt": PROMPT, "max_tokens": N_TOKENS, "temperature": 0}
        await self._post("whole", "/v1/completions", body, len(PROMPT) + N_TOKENS)

    async def batch(self) -> None:
        """Two prompts in one request."""
        body = {"tokens": [PROMPT, [*PROMPT, 8]], "max_tokens": N_TOKENS, "temperature": 0}
        await self._post("batch", "/v1/batch", body, 2 * (len(PROMPT) + N_TOKENS) + 1)

    async def embed(self, text: str) -> None:
        """The vector of a text, one call after the other until a stream has ended."""
        most = 4 * len(text) + 8  # a token has a byte at least
        answer = await self._post("embed", "/v1/embeddings", {"input": text}, most)
        if answer is not None:
            self.n_got += answer.json()["usage"]["prompt_tokens"] - most

    async def _post(self, kind: str, path: str, body: dict[str, object], n_tokens: int) -> httpx.Response | None:
        """The answer, which uses so many tokens; None if the connection ended without one."""
        try:
            answer = await self.http.post(path, json=body, headers=self.headers)
        except _LOST:
            self.n_unsure += n_tokens
            self.lost[kind] += 1
            return None
        assert answer.status_code == 200, answer.text
        self.n_got += n_tokens
        return answer
