"""Prompts that have killed workers until they were quarantined: asked for again, they are refused instead of computed. Pure.

Clients repeat what failed, under the same id or another one, and each time would cost four gangs. What is remembered is the
prompt with its sampling (the seed aside), for as long as a finished request is.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from actors.gateway.order import Order
from actors.gateway.refusals import Refusal
from actors.gateway.request import GrowingSequence
from messages.generation import Sampling

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


def is_same_computation(one: GrowingSequence, other: GrowingSequence) -> bool:
    """Will `other` do what `one` has done, up to where `one` stands now? Both are computed from what is compared here alone."""
    a, b = one.request.order, other.request.order
    return (
        other is not one
        and len(other.ids) <= len(one.ids) < b.max_tokens
        and a.prompts[one.index // a.n] == b.prompts[other.index // b.n]
        and _noise(a.sampling_of(one.index)) == _noise(b.sampling_of(other.index))
        and (a.stop, a.stop_tokens) == (b.stop, b.stop_tokens)
    )


def _noise(sampling: Sampling) -> Sampling:
    """A greedy choice asks no seed."""
    return sampling if sampling.temperature else msgspec.structs.replace(sampling, seed=0)


def _key(order: Order, nth: int) -> bytes:
    """Of prompt number `nth`."""
    sampling = msgspec.msgpack.encode(msgspec.structs.replace(order.sampling, seed=0))
    return blake2b(order.prompts[nth], digest_size=16, key=blake2b(sampling, digest_size=32).digest()).digest()
