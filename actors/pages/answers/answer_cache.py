"""The answers that a gateway, or the cache directory, keeps for equal requests. Pure: the caller passes the time.

An answer is the tokens of its sequences; what a client reads is made of them again, so that an answer from the cache has the
bytes of any other one in every API. The loss of the cache costs computing, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from actors.pages.answers.age_queue import AgeQueue
from actors.pages.answers.frequent_store import FrequentStore
from actors.pages.forgetting import Forgetting
from actors.pages.prompt_start import may_begin
from messages.caches.equal import ForgetAnswers, KeptAnswer

_OWN_BYTES = 400  # of an answer, and of each of its sequences: key, tuples, its place in the dictionaries
_LARGEST_SHARE = 8  # an answer that takes more than this part of the cache is not kept


class AnswerCache:
    """At most `max_bytes` of answers, each for `ttl_s` seconds. Those of a scope that has more than its part leave first
    (`KeptAnswer.cache_share`), then those that are asked for seldom."""

    def __init__(self, max_bytes: int, ttl_s: float, reset_s: float = -math.inf) -> None:
        """`reset_s`: answers to requests that began before are not kept: they may have been forgotten."""
        self._ttl_s, self.reset_s = ttl_s, reset_s
        self._store: FrequentStore[bytes, KeptAnswer] = FrequentStore(max_bytes)
        self._ages: AgeQueue[bytes] = AgeQueue(self._since_s_of)
        self.n_hits = self.n_misses = self.n_evicted = self.n_tokens_saved = 0
        self.n_changes = 0  # of the answers that are kept

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[KeptAnswer]:
        """All answers, those that leave first at the front."""
        return (answer for _, answer in self._store)

    @property
    def n_bytes(self) -> int:
        """The memory of all answers."""
        return self._store.n_bytes

    @property
    def n_share_evicted(self) -> int:
        """Answers that left because of a bound of their scope."""
        return self._store.n_share_evicted

    @property
    def oldest_s(self) -> float:
        """Unix time from which the oldest answer is; 0 without any."""
        return self._ages.oldest_s()

    def find(self, key: bytes, now_s: float, max_age_s: float = math.inf) -> KeptAnswer | None:
        """The answer to the requests of this key; None if there is none that still counts and is no older than `max_age_s`."""
        answer = self._store.get(key)
        self._store.ask(_hash_of(key))
        if answer is not None and not self.is_fresh(answer, now_s):
            self._drop(key)
            answer = None
        if answer is None or now_s - answer.since_s > max_age_s:
            self.n_misses += 1
            return None
        self._store.use(key)
        self.n_hits += 1
        self.n_tokens_saved += sum(len(sequence.ids) // 4 for sequence in answer.sequences)
        return answer

    def keys(self) -> list[bytes]:
        """The keys of all answers, in the order in which they came."""
        return [*self._store.all_keys()]

    def get(self, key: bytes) -> KeptAnswer | None:
        """The answer of this key, if it is here. It does not count as asked for."""
        return self._store.get(key)

    def has(self, key: bytes, now_s: float, max_age_s: float = math.inf) -> bool:
        """True if `find` would find an answer."""
        answer = self._store.get(key)
        return answer is not None and self.is_fresh(answer, now_s) and now_s - answer.since_s <= max_age_s

    def is_fresh(self, answer: KeptAnswer, now_s: float) -> bool:
        """True if an answer is not too old to be given."""
        return answer.since_s > now_s - self._ttl_s

    def used(self, key: bytes) -> None:
        """Another process has found the answer of this key."""
        self._store.ask(_hash_of(key))
        if key in self._store:
            self._store.use(key)

    def keep(self, answer: KeptAnswer) -> bool:
        """Keep an answer, in place of an older one, unless its request was accepted before the last `forget`. Returns whether
        it is kept."""
        return answer.began_s > self.reset_s and self.restore(answer)

    def restore(self, answer: KeptAnswer) -> bool:
        """Keep an answer whose request may have begun at any time. Returns whether it is kept."""
        n_bytes, before = _bytes_of(answer), self._store.get(answer.key)
        if n_bytes * _LARGEST_SHARE > self._store.max_bytes or (before is not None and before.since_s >= answer.since_s):
            return False
        self._store.shares.note(answer.scope, answer.cache_share)
        left = self._store.put(answer.key, answer, n_bytes, _hash_of(answer.key), answer.scope)
        self.n_evicted += len(left)
        self.n_changes += 1
        if answer.key not in self._store:
            return False
        self._ages.add(answer.key, answer.since_s, self._store.all_keys(), len(self._store))
        return True

    def drop_old(self, now_s: float) -> None:
        """Drop answers that are too old to be given, a thousand at most."""
        self._ages.drop_until(now_s - self._ttl_s, self._drop)

    def forget(self, wanted: Forgetting, now_s: float) -> int:
        """Drop the answers that are wanted; returns how many. Of requests that run now, none is kept. Of a prefix, the first
        256 tokens count."""
        self.reset_s = now_s
        keys = [answer.key for answer in self if is_answer_wanted(answer, wanted, now_s)]
        for key in keys:
            self._drop(key)
        return len(keys)

    def statistics(self, now_s: float) -> dict[str, float]:
        """For /v1/metrics and `supervisor status`. Old answers do not count."""
        self.drop_old(now_s)
        return {
            "answer_hits": self.n_hits,
            "answer_misses": self.n_misses,
            "answers_kept": len(self),
            "answer_bytes": self.n_bytes,
            "answer_tokens": self.n_tokens_saved,
            "answer_evicted": self.n_evicted,
            "answer_share_evicted": self.n_share_evicted,
            "answer_oldest_s": age_s(self.oldest_s, now_s),
        }

    def _since_s_of(self, key: bytes) -> float | None:
        answer = self._store.get(key)
        return None if answer is None else answer.since_s

    def _drop(self, key: bytes) -> None:
        self._store.pop(key)
        self.n_changes += 1


def age_s(oldest_s: float, now_s: float) -> float:
    """The age of the oldest answer of a cache in seconds, rounded; 0 without any answer."""
    return round(max(now_s - oldest_s, 0.0), 1) if oldest_s else 0.0


def forgetting_of(message: ForgetAnswers) -> Forgetting:
    """Which answers an operator wants forgotten."""
    model = None if message.model < 0 else int(message.model)
    return Forgetting(message.scope, message.tokens.tobytes(), message.older_than_s, model)


def is_answer_wanted(answer: KeptAnswer, wanted: Forgetting, now_s: float) -> bool:
    """True if an answer is to be forgotten."""
    is_old = answer.since_s <= now_s - wanted.older_than_s
    if wanted.model not in (None, answer.model):
        return False
    return is_old and wanted.scope in (None, answer.scope) and any(may_begin(start, wanted.tokens) for start in answer.starts)


def _bytes_of(answer: KeptAnswer) -> int:
    sequences = sum(_OWN_BYTES + len(sequence.ids) for sequence in answer.sequences)
    return _OWN_BYTES + sequences + sum(map(len, answer.starts))


def _hash_of(key: bytes) -> int:
    """Keys are digests, so eight bytes of one are spread evenly."""
    return int.from_bytes(key[:8], "little")
