"""Prompts that have killed workers until they were quarantined: asked for again, they are refused instead of computed. Pure.

Clients repeat what failed, under the same id or another one, and each time would cost four gangs. What is remembered is the
prompt with its sampling (the seed aside), for as long as a finished request is. Who asks for no more tokens than it gave before
is not refused.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from actors.gateway.requests.order import Order
from actors.gateway.requests.refusals import Refusal
from actors.gateway.requests.request import GrowingSequence
from messages.generation import Sampling

_MOST = 1024


class _Verdict(NamedTuple):
    until_s: float
    n_given: int  # tokens that it gave before workers died of it


class Quarantine:
    """By digest, oldest first. All times are Unix time."""

    def __init__(self, retention_s: float) -> None:
        self._retention_s = retention_s
        self._verdicts: dict[bytes, _Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def condemn(self, order: Order, index: int, n_given: int, now_s: float) -> None:
        """A sequence of this request was quarantined behind `n_given` tokens."""
        key = _key(order, index // order.n)
        before = self._verdicts.pop(key, None)
        self._verdicts[key] = _Verdict(now_s + self._retention_s, min(n_given, before.n_given) if before else n_given)
        while len(self._verdicts) > _MOST:
            del self._verdicts[next(iter(self._verdicts))]

    def check(self, order: Order, now_s: float) -> None:
        """May it be computed? Raises: Refusal."""
        while self._verdicts and next(iter(self._verdicts.values())).until_s <= now_s:
            del self._verdicts[next(iter(self._verdicts))]
        if not self._verdicts:
            return
        for nth in range(len(order.prompts)):
            verdict = self._verdicts.get(_key(order, nth))
            if verdict is not None and verdict.until_s > now_s and order.terms.max_tokens > verdict.n_given:
                place = f"behind {verdict.n_given} tokens of this prompt's answer" if verdict.n_given else "of this prompt"
                detail = f"quarantined: workers died {place}; it is refused for another {verdict.until_s - now_s:.0f} s"
                raise Refusal("quarantined", detail)


def is_same_computation(one: GrowingSequence, other: GrowingSequence) -> bool:
    """Will `other` do what `one` has done, up to where `one` stands now? Both are computed from what is compared here alone."""
    a, b = one.request.order, other.request.order
    return (
        other is not one
        and len(other.ids) <= len(one.ids) < b.terms.max_tokens
        and a.prompts[one.index // a.n] == b.prompts[other.index // b.n]
        and _noise(a.sampling_of(one.index)) == _noise(b.sampling_of(other.index))
        and (a.terms.stop, a.terms.stop_tokens) == (b.terms.stop, b.terms.stop_tokens)
    )


def _noise(sampling: Sampling) -> Sampling:
    """A greedy choice asks no seed."""
    return sampling if sampling.temperature else msgspec.structs.replace(sampling, seed=0)


def _key(order: Order, nth: int) -> bytes:
    """Of prompt number `nth`."""
    sampling = msgspec.msgpack.encode(msgspec.structs.replace(order.sampling, seed=0))
    return blake2b(order.prompts[nth], digest_size=16, key=blake2b(sampling, digest_size=32).digest()).digest()
