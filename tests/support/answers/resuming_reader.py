"""A client like curl that reads an answer over as many connections as it takes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx

BODY: dict[str, Any] = {"prompt": "hello", "max_tokens": 400, "temperature": 0, "stream": True}
_EVENT = re.compile(rb"(?:: waiting\n)*data: [^\n]*\nid: (\d+)\n(?:retry: \d+\n)?\n")
_LOST = (httpx.TransportError, httpx.HTTPStatusError)


class Reader:
    """A client like curl that keeps whole events only, and comes back after the last of them."""

    def __init__(self, http: httpx.AsyncClient, key: str) -> None:
        self._http, self.key = http, key
        self.body, self.last_id, self.n_connections = b"", 0, 0

    async def read(self, is_far: asyncio.Semaphore) -> bytes:
        """Read to the end over as many connections as it takes. `is_far` is released when half of the events are there."""
        has_told = False
        while b"[DONE]" not in self.body:
            try:
                async with self._connected() as answer:
                    answer.raise_for_status()
                    self.n_connections += 1
                    rest = b""
                    async for data in answer.aiter_raw():
                        rest = self._take(rest + data)
                        if not has_told and self.last_id > 50:
                            has_told = True
                            is_far.release()
            except _LOST:
                await asyncio.sleep(0.05)
        return self.body

    def _connected(self) -> Any:
        headers = {"Last-Event-ID": str(self.last_id)} if self.last_id else {}
        if self.n_connections % 2:
            return self._http.stream("GET", f"/v1/streams/{self.key}", headers=headers)
        return self._http.stream("POST", "/v1/completions", json=BODY, headers={**headers, "Idempotency-Key": self.key})

    def _take(self, data: bytes) -> bytes:
        """Keep the whole events; returns what is left."""
        end = 0
        for event in _EVENT.finditer(data):
            self.last_id, end = int(event[1]), event.end()
        self.body += data[:end]
        return data[end:]
