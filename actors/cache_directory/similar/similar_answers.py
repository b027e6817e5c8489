"""Answers by what their questions mean. Pure: the caller passes vectors and the time.

Answers are kept in circles. A circle is a digest of all that two requests must have in common (their model, their caller, the
terms of their answers, ...), so an answer never leaves its circle, whatever the vectors are.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from actors.cache_directory.similar.neighbours import Neighbours
from actors.pages.answers.age_queue import AgeQueue
from actors.pages.answers.answer_cache import age_s
from actors.pages.answers.frequent_store import FrequentStore
from actors.pages.forgetting import Forgetting
from actors.pages.prompt_start import may_begin
from messages.outcomes import EndReason

_NEIGHBOURS = 10  # that are asked for: some may be too old
_SAME = 0.9999  # vectors that are so similar come of the same text; float16 makes errors of 0.0005
_OWN_BYTES = 1000  # of an answer: its objects, its places in the dictionaries, its edges in a graph
_MOST_DROPPED = 30  # old answers at a time: up to 0.1 ms each in a large graph
_LARGEST_SHARE = 8  # an answer that takes more than this part of the memory is not kept


class SimilarAnswer(NamedTuple):
    """One answer. `vector`: of its question, float16 little-endian; `ids`: its tokens, int32 little-endian; `scope`: of its
    request (`Terms.cache_scope`), whose prompt begins with `start`; `since_s`: Unix time; `cache_share`: the part of the memory
    that answers of its scope may take."""

    circle: bytes
    vector: bytes
    ids: bytes
    reason: EndReason
    scope: bytes
    start: bytes
    since_s: float
    cache_share: float = 1.0

    @property
    def n_bytes(self) -> int:
        """The memory that it takes."""
        return _OWN_BYTES + 3 * len(self.vector) + len(self.ids) + len(self.start)

    @property
    def floats(self) -> np.ndarray:
        """Its vector: float32 [dimensions]."""
        return np.frombuffer(self.vector, "<f2").astype(np.float32)

    def is_wanted(self, wanted: Forgetting, now_s: float) -> bool:
        """True if it is to be forgotten."""
        is_old = self.since_s <= now_s - wanted.older_than_s
        return is_old and wanted.scope in (None, self.scope) and may_begin(self.start, wanted.tokens)


class SimilarAnswers:
    """At most `max_bytes` of answers, each for `ttl_s` seconds; those that are found seldom leave first."""

    def __init__(self, max_bytes: int, ttl_s: float, now_s: float) -> None:
        self._max_bytes, self._ttl_s = max_bytes, ttl_s
        self._answers: FrequentStore[int, SimilarAnswer] = FrequentStore(max_bytes)  # by number
        self._ages: AgeQueue[int] = AgeQueue(self._since_s_of)
        self._circles: dict[bytes, Neighbours] = {}
        self._next_number = 0
        self._reset_s = now_s  # answers to requests that began before are not kept: a dead directory may have been told so
        self.n_hits = self.n_misses = self.n_evicted = 0
        self.n_changes = 0  # of the answers that are kept

    def __len__(self) -> int:
        return len(self._answers)

    def __iter__(self) -> Iterator[SimilarAnswer]:
        """All answers, those that leave first at the front."""
        return (answer for _, answer in self._answers)

    @property
    def n_bytes(self) -> int:
        """The memory of all answers."""
        return self._answers.n_bytes

    @property
    def n_share_evicted(self) -> int:
        """Answers that left because of a bound of their scope."""
        return self._answers.n_share_evicted

    @property
    def oldest_s(self) -> float:
        """Unix time from which the oldest answer is; 0 without any."""
        return self._ages.oldest_s()

    def find(self, circle: bytes, vector: np.ndarray, least: float, now_s: float) -> tuple[SimilarAnswer, float] | None:
        """The answer to the most similar question of a circle, and how similar the two are; None if all are less similar than
        `least`. `vector`: float32 [dimensions]."""
        for number, similarity in self._nearest(circle, vector):
            if not similarity >= least:  # true for no number too, which a damaged vector gives
                break
            answer = self._answers.get(number)
            if answer is None:
                continue
            if not self.is_fresh(answer, now_s):
                self._drop(number)
                continue
            self._answers.ask(_hash_of(answer))
            self._answers.use(number)
            self.n_hits += 1
            return answer, min(similarity, 1.0)
        self.n_misses += 1
        return None

    def is_fresh(self, answer: SimilarAnswer, now_s: float) -> bool:
        """True if an answer is not too old to be given."""
        return answer.since_s > now_s - self._ttl_s

    def keep(self, answer: SimilarAnswer, began_s: float) -> None:
        """Keep an answer, in place of the one to the same text. `began_s`: Unix time at which its request was accepted; if that
        was before the last `forget`, it is not kept."""
        if began_s > self._reset_s:
            self.restore(answer)

    def restore(self, answer: SimilarAnswer) -> None:
        """Keep an answer whose request may have begun at any time."""
        vector = answer.floats
        if not len(vector) or not np.isfinite(vector).all() or answer.n_bytes * _LARGEST_SHARE > self._max_bytes:
            return
        neighbours = self._circles.get(answer.circle)
        if neighbours is not None and neighbours.dimensions != len(vector):
            return
        for number, similarity in self._nearest(answer.circle, vector):
            if similarity >= _SAME:
                self._drop(number)
        number, self._next_number = self._next_number, self._next_number + 1
        self._circles.setdefault(answer.circle, Neighbours(len(vector))).add(number, vector)
        content_hash = _hash_of(answer)
        self._answers.ask(content_hash)
        self.n_changes += 1
        self._answers.shares.note(answer.scope, answer.cache_share)
        for gone, one in self._answers.put(number, answer, answer.n_bytes, content_hash, answer.scope):
            self._remove_vector(gone, one)
            self.n_evicted += 1
        if number in self._answers:
            self._ages.add(number, answer.since_s, self._answers.all_keys(), len(self._answers))

    def forget(self, wanted: Forgetting, now_s: float) -> int:
        """Drop the answers that are wanted; returns how many. Of requests that run now, none is kept."""
        self._reset_s = now_s
        numbers = [number for number, answer in self._answers if answer.is_wanted(wanted, now_s)]
        for number in numbers:
            self._drop(number)
        return len(numbers)

    def statistics(self, now_s: float) -> dict[str, float]:
        """For /v1/metrics and `supervisor status`. Old answers do not count, once they are dropped: so many at a time."""
        self._ages.drop_until(now_s - self._ttl_s, self._drop, _MOST_DROPPED)
        return {
            "similar_hits": self.n_hits,
            "similar_misses": self.n_misses,
            "similar_answers": len(self),
            "similar_bytes": self.n_bytes,
            "similar_evicted": self.n_evicted,
            "similar_share_evicted": self.n_share_evicted,
            "similar_oldest_s": age_s(self.oldest_s, now_s),
        }

    def _nearest(self, circle: bytes, vector: np.ndarray) -> list[tuple[int, float]]:
        neighbours = self._circles.get(circle)
        if neighbours is None or neighbours.dimensions != len(vector):
            return []
        return neighbours.nearest(vector, _NEIGHBOURS)

    def _since_s_of(self, number: int) -> float | None:
        answer = self._answers.get(number)
        return None if answer is None else answer.since_s

    def _drop(self, number: int) -> None:
        self.n_changes += 1
        self._remove_vector(number, self._answers.pop(number))

    def _remove_vector(self, number: int, answer: SimilarAnswer) -> None:
        neighbours = self._circles[answer.circle]
        neighbours.remove(number)
        if not len(neighbours):
            del self._circles[answer.circle]


def _hash_of(answer: SimilarAnswer) -> int:
    """Of its question."""
    return int.from_bytes(blake2b(answer.circle + answer.vector, digest_size=8).digest(), "little")
