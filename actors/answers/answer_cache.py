"""The answers that a gateway keeps. Pure: the caller passes the time.

An answer is the tokens of its sequences; what a client reads is made of them again, so that an answer from the cache has the
bytes of any other one in every API. The loss of the cache costs computing, and nothing else.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from actors.gateway.requests.request import Request
from actors.pages.forgetting import Forgetting
from actors.pages.prompt_start import START_BYTES, may_begin
from messages.outcomes import EndReason

_OWN_BYTES = 400  # of an entry: its key, its tuples, its place in the dictionary
_LARGEST_SHARE = 8  # an answer that takes more than this part of the cache is not kept
_MOST_TOKENS = 4096  # of one answer: its text is made in one turn of the event loop, 5 us a token
_COMPLETE: tuple[EndReason, ...] = ("stop", "length")


class KeptSequence(NamedTuple):
    """One sequence of an answer. `ids`: its tokens, int32 little-endian. `n_cached`: prompt tokens that needed no prefill."""

    ids: bytes
    reason: EndReason
    n_cached: int

    @property
    def tokens(self) -> list[int]:
        """Its token ids."""
        return np.frombuffer(self.ids, "<i4").tolist()


class KeptAnswer(NamedTuple):
    """The sequences of one answer, in order. It was computed at `since_s` on the monotonic clock, for a request of this scope
    (`Terms.cache_scope`), whose prompts begin with `starts`."""

    sequences: tuple[KeptSequence, ...]
    since_s: float
    n_bytes: int
    scope: bytes
    starts: tuple[bytes, ...]

    def is_wanted(self, wanted: Forgetting, now_s: float) -> bool:
        """True if it is to be forgotten."""
        is_old = self.since_s <= now_s - wanted.older_than_s
        return is_old and wanted.scope in (None, self.scope) and any(may_begin(start, wanted.tokens) for start in self.starts)


class AnswerCache:
    """At most `max_bytes` of answers, each for `ttl_s` seconds; the one that was not asked for longest leaves first."""

    def __init__(self, max_bytes: int, ttl_s: float) -> None:
        self._max_bytes, self._ttl_s = max_bytes, ttl_s
        self._answers: OrderedDict[bytes, KeptAnswer] = OrderedDict()
        self._reset_s = -math.inf
        self.n_bytes = self.n_hits = self.n_misses = self.n_evicted = self.n_tokens_saved = 0

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: bytes, now_s: float) -> KeptAnswer | None:
        """The answer to the requests of this key; None if there is none that still counts."""
        answer = self._answers.get(key)
        if answer is None or answer.since_s + self._ttl_s <= now_s:
            if answer is not None:
                self._drop(key)
            self.n_misses += 1
            return None
        self._answers.move_to_end(key)
        self.n_hits += 1
        self.n_tokens_saved += sum(len(sequence.ids) // 4 for sequence in answer.sequences)
        return answer

    def has(self, key: bytes, now_s: float) -> bool:
        """True if `find` would find an answer."""
        answer = self._answers.get(key)
        return answer is not None and answer.since_s + self._ttl_s > now_s

    def keep(self, key: bytes, request: Request, now_s: float) -> None:
        """Keep the answer of a request that is over, unless a part of it failed or was cancelled, or it was accepted before the
        last `forget`."""
        if request.began_s <= self._reset_s:
            return
        sequences = []
        for sequence in request.sequences:
            if sequence.ended is None or sequence.ended.reason not in _COMPLETE:
                return
            ids = np.array(sequence.ids, "<i4").tobytes()
            sequences.append(KeptSequence(ids, sequence.ended.reason, sequence.ended.n_cached))
        starts = tuple(prompt[:START_BYTES] for prompt in request.spec.prompts)
        n_bytes = _OWN_BYTES + sum(_OWN_BYTES + len(sequence.ids) for sequence in sequences) + sum(map(len, starts))
        if n_bytes * _LARGEST_SHARE > self._max_bytes or request.n_generated > _MOST_TOKENS:
            return
        if key in self._answers:
            self._drop(key)
        self._answers[key] = KeptAnswer(tuple(sequences), now_s, n_bytes, request.spec.terms.cache_scope, starts)
        self.n_bytes += n_bytes
        while self.n_bytes > self._max_bytes:
            self._drop(next(iter(self._answers)))
            self.n_evicted += 1

    def forget(self, wanted: Forgetting, now_s: float) -> int:
        """Drop the answers that are wanted; returns how many. Of requests that run now, none is kept. Of a prefix, the first
        256 tokens count."""
        self._reset_s = now_s
        keys = [key for key, answer in self._answers.items() if answer.is_wanted(wanted, now_s)]
        for key in keys:
            self._drop(key)
        return len(keys)

    def statistics(self) -> dict[str, float]:
        """For /v1/metrics and `supervisor status`."""
        return {
            "answer_hits": self.n_hits,
            "answer_misses": self.n_misses,
            "answers_kept": len(self),
            "answer_bytes": self.n_bytes,
            "answer_tokens": self.n_tokens_saved,
        }

    def _drop(self, key: bytes) -> None:
        self.n_bytes -= self._answers.pop(key).n_bytes
