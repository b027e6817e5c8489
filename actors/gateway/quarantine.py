"""Prompts that have killed workers until they were quarantined: asked for again, they are refused instead of computed. Pure.

Clients repeat what failed, under the same id or another one, and each time would cost four gangs. What is remembered is the
prompt with its sampling (the seed aside), for as long as a finished request is.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from actors.gateway.order import Order
from actors.gateway.refusals import Refusal

_MOST = 1024


class Quarantine:
    """By digest, oldest first. All times are Unix time."""

    def __init__(self, retention_s: float) -> None:
        self._retention_s = retention_s
        self._until_s: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._until_s)

    def condemn(self, order: Order, index: int, now_s: float) -> None:
        """A sequence of this request was quarantined."""
        key = _key(order, index // order.n)
        self._until_s.pop(key, None)
        self._until_s[key] = now_s + self._retention_s
        while len(self._until_s) > _MOST:
            del self._until_s[next(iter(self._until_s))]

    def check(self, order: Order, now_s: float) -> None:
        """May it be computed? Raises: Refusal."""
        while self._until_s and next(iter(self._until_s.values())) <= now_s:
            del self._until_s[next(iter(self._until_s))]
        if not self._until_s:
            return
        for nth in range(len(order.prompts)):
            until_s = self._until_s.get(_key(order, nth), now_s)
            if until_s > now_s:
                detail = f"quarantined: workers died of this prompt; it is refused for another {until_s - now_s:.0f} s"
                raise Refusal("quarantined", detail)


def _key(order: Order, nth: int) -> bytes:
    """Of prompt number `nth`."""
    sampling = msgspec.msgpack.encode(msgspec.structs.replace(order.sampling, seed=0))
    return blake2b(order.prompts[nth], digest_size=16, key=blake2b(sampling, digest_size=32).digest()).digest()
