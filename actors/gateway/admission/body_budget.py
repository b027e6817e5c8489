"""Bounds the bytes of requests that are not accepted or refused yet: of each request, and of all together. Pure.

Only the bytes of a body beyond its first 64 KiB are counted. So small requests pass even when a few slow clients with large
bodies have filled the budget.
"""

from __future__ import annotations

from actors.gateway.requests.refusals import Refusal

UNCOUNTED_BYTES = 64 << 10  # of each body; the number of connections bounds the sum of these


class BodyBudget:
    """At most `max_body_bytes` for one body, and `max_total_bytes` counted for all (at least the maximum of one body)."""

    def __init__(self, max_body_bytes: int, max_total_bytes: int) -> None:
        self.max_body_bytes, self._max_total_bytes = max_body_bytes, max(max_total_bytes, max_body_bytes)
        self.n_bytes = 0  # counted now

    def count(self, n_bytes: int, counted: int = 0) -> int:
        """Count a body that has `n_bytes` so far and for which `counted` bytes were counted before; returns the new `counted`.

        Call `release` with the last `counted` once the request is accepted or refused. Raises: Refusal.
        """
        if n_bytes > self.max_body_bytes:
            raise self.too_large(str(n_bytes))
        more = max(n_bytes - UNCOUNTED_BYTES, 0) - counted
        if more and self.n_bytes + more > self._max_total_bytes:
            most, got = self._max_total_bytes, self.n_bytes + more
            detail = f"body: expected at most {most} bytes in large bodies together (gateway.max_bodies_bytes), got {got}"
            raise Refusal("too_many_bodies", detail, retry_after_s=1.0, limit=f"max_bodies_bytes={most}")
        self.n_bytes += more
        return counted + more

    def release(self, counted: int) -> None:
        """Remove bytes that `count` has counted."""
        self.n_bytes -= counted

    def too_large(self, got: str) -> Refusal:
        """The refusal of a body with more than `max_body_bytes`."""
        detail = f"body: expected at most {self.max_body_bytes} bytes, got {got}"
        return Refusal("too_large", detail, limit=f"max_body_bytes={self.max_body_bytes}")
