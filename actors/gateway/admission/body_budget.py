"""Bounds the bytes of requests that are not accepted or refused yet: of each one, of each caller, and of all. Pure.

Only the bytes of a body beyond its first 64 KiB are counted. So small requests pass even when a few slow clients with large
bodies have filled the budget. Where callers are told apart, each has its share of the budget; one body alone may take it all.
"""

from __future__ import annotations

from actors.gateway.overload.caller_shares import CallerShares
from actors.gateway.requests.refusals import Refusal

UNCOUNTED_BYTES = 64 << 10  # of each body; the number of connections bounds the sum of these
_WEIGHT = 1.0  # of each caller, as for connections
_RETRY_S = 1.0


class BodyBudget:
    """At most `max_body_bytes` for one body, and `max_total_bytes` counted for all (at least the maximum of one body).
    `are_told_apart`: each caller has a share of them."""

    def __init__(self, max_body_bytes: int, max_total_bytes: int, *, are_told_apart: bool = False) -> None:
        self.max_body_bytes = max_body_bytes
        self._shares = CallerShares(max(max_total_bytes, max_body_bytes), are_told_apart=are_told_apart)

    @property
    def n_bytes(self) -> int:
        """Bytes that are counted now."""
        return self._shares.n_held

    def count(self, n_bytes: int, counted: int = 0, caller: bytes = b"") -> int:
        """Count a body that has `n_bytes` so far and for which `counted` bytes were counted before; returns the new `counted`.

        Call `release` with the last `counted` once the request is accepted or refused. Raises: Refusal.
        """
        if n_bytes > self.max_body_bytes:
            raise self.too_large(str(n_bytes))
        more = max(n_bytes - UNCOUNTED_BYTES, 0) - counted
        if more:
            self._check(more, counted, caller)
            self._shares.add(caller, _WEIGHT, more)
        return counted + more

    def release(self, counted: int, caller: bytes = b"") -> None:
        """Remove bytes that `count` has counted."""
        self._shares.release(caller, counted)

    def too_large(self, got: str) -> Refusal:
        """The refusal of a body with more than `max_body_bytes`."""
        detail = f"body: expected at most {self.max_body_bytes} bytes, got {got}"
        return Refusal("too_large", detail, limit=f"max_body_bytes={self.max_body_bytes}")

    def _check(self, more: int, counted: int, caller: bytes) -> None:
        """Return if a caller may have `more` bytes, with a body of which `counted` are counted already. Raises: Refusal."""
        shares = self._shares
        most, got, held = shares.limit, shares.n_held + more, shares.held_by(caller)
        if got > most:
            detail = f"body: expected at most {most} bytes in large bodies together (gateway.max_bodies_bytes), got {got}"
            raise Refusal("too_many_bodies", detail, retry_after_s=_RETRY_S, limit=f"max_bodies_bytes={most}")
        if held > counted and more > (room := shares.room(caller, _WEIGHT)):
            what = f"bytes in large bodies of one caller together, its share of {most} (gateway.max_bodies_bytes)"
            detail = f"body: expected at most {held + room} {what}, got {held + more}"
            raise Refusal("caller_share", detail, retry_after_s=_RETRY_S, limit=f"caller_bodies_bytes={held + room}")
