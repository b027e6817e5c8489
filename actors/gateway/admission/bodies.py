"""Requests as they came, over HTTP or ZeroMQ, until they are understood: each is bounded, and so are all of them together.

What a body holds beyond its first 64 KiB counts until its request is accepted or refused. So a few slow clients with large
bodies can fill the budget, but small requests still pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request as HttpRequest

from actors.gateway.requests.refusals import Refusal

UNCOUNTED_BYTES = 64 << 10  # of each body; bounded in all by the number of connections


class RequestBodies:
    """`most_bytes` of one body, `budget_bytes` of all (never less than one needs)."""

    def __init__(self, most_bytes: int, budget_bytes: int) -> None:
        self._most_bytes, self._budget_bytes = most_bytes, max(budget_bytes, most_bytes)
        self.n_bytes = 0  # counted now

    @asynccontextmanager
    async def read(self, http: HttpRequest) -> AsyncIterator[bytearray]:
        """The whole body; it is counted for as long as the context lasts.

        Raises: Refusal as soon as there is too much; starlette's ClientDisconnect.
        """
        declared = http.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._most_bytes:
            raise Refusal("too_large", f"body: expected at most {self._most_bytes} bytes, got {declared}")
        body, counted = bytearray(), 0
        try:
            async for part in http.stream():
                if len(body) + len(part) > self._most_bytes:
                    raise Refusal("too_large", f"body: expected at most {self._most_bytes} bytes, got more")
                counted = self._count(len(body) + len(part), counted)
                body += part
            yield body
        finally:
            self.n_bytes -= counted

    def take(self, n_bytes: int) -> int:
        """A body that has come as a whole; returns what to give to `let_go` when it is understood. Raises: Refusal."""
        if n_bytes > self._most_bytes:
            raise Refusal("too_large", f"body: expected at most {self._most_bytes} bytes, got {n_bytes}")
        return self._count(n_bytes, 0)

    def let_go(self, counted: int) -> None:
        """See `take`."""
        self.n_bytes -= counted

    def _count(self, n_bytes: int, counted: int) -> int:
        """`counted` of a body are in the sum; returns how many are when it has `n_bytes`. Raises: Refusal."""
        more = max(n_bytes - UNCOUNTED_BYTES, 0) - counted
        if more and self.n_bytes + more > self._budget_bytes:
            detail = f"body: expected at most {self._budget_bytes} bytes in large bodies together, got {self.n_bytes + more}"
            raise Refusal("unavailable", detail, retry_after_s=1.0, name="too_many_bodies")
        self.n_bytes += more
        return counted + more
