"""What a gateway knows of equal and similar requests: kept answers, and requests whose tokens others get as well."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from actors.gateway.answer_cache.access import CacheAccess, access_of
from actors.gateway.answer_cache.answer_of import answer_of
from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.answer_cache.hit_times import hit_times
from actors.gateway.answer_cache.saved_work import AnswerSource, SavedWork
from actors.gateway.answer_cache.shared_answers import SharedAnswers
from actors.gateway.dispatch.post import Post
from actors.gateway.dispatch.replica_loads import ReplicaLoads
from actors.gateway.lifecycle.coalescing import Coalescing
from actors.gateway.lifecycle.coalescing_metrics import CoalescingMetrics
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.settings import GatewaySettings
from actors.gateway.similar_answers.question import Asked
from actors.gateway.similar_answers.similar_cache import SimilarCache
from actors.pages.answers.answer_cache import AnswerCache
from actors.pages.answers.cache_metrics import AnswerCacheMetrics
from messages.caches.equal import AnswersKept, KeptAnswer

Source = KeptAnswer | Request | None  # a kept answer; the request to follow; None: the request is computed
_NOTHING: Sequence[Request] = ()


class EqualRequests:
    """`kept` and `shared` are None if no answers are kept, `coalescing` if each request is computed that has no kept answer,
    `similar` if each question has an answer of its own."""

    def __init__(self, settings: GatewaySettings, post: Post, loads: ReplicaLoads, similar: SimilarCache | None = None) -> None:
        self._settings, self._post, self.similar = settings, post, similar
        has_cache = settings.answer_cache != "off"
        self.kept = AnswerCache(settings.answer_cache_bytes, settings.answer_cache_ttl_s) if has_cache else None
        self.shared = None if self.kept is None else SharedAnswers(post, self.kept)
        self.coalescing = Coalescing() if settings.answer_coalescing else None
        self._saved = SavedWork(loads.of_model)
        self.hit_s = hit_times()

    def register_metrics(self, registry: CollectorRegistry) -> None:
        """Add the metrics of what is turned on."""
        if self.kept is not None:
            registry.register(AnswerCacheMetrics(self.kept))
            registry.register(self.hit_s)
        if self.coalescing is not None:
            registry.register(CoalescingMetrics(self.coalescing))
        if self.kept is not None or self.coalescing is not None:
            registry.register(self._saved)

    def access(self, spec: RequestSpec, use: CacheUse, *, has_seed: bool) -> CacheAccess:
        """What a request may do here. `has_seed`: it is sampled with its client's own seed."""
        return access_of(self._settings, spec, use, has_seed=has_seed)

    def has_source(self, spec: RequestSpec, access: CacheAccess) -> bool:
        """True if an equal request has the answer, or will have it."""
        if not access.may_find:
            return False
        if access.may_keep and self._has(access):
            return True
        return self.coalescing is not None and self.coalescing.leader_for(access.key, spec.terms) is not None

    def has_kept(self, access: CacheAccess) -> bool:
        """True if the answer of an equal request is kept."""
        return access.may_find and access.may_keep and self._has(access)

    def source_of(self, spec: RequestSpec, access: CacheAccess, asked: Asked | None = None) -> tuple[Source, RequestSpec]:
        """Where the tokens of a new request come from, and its specification, which says so. `asked`: what similar questions
        have."""
        if not access.may_find:
            return None, spec
        if access.may_keep and (answer := self._kept_answer(access)) is not None:
            return answer, msgspec.structs.replace(spec, is_from_cache=True)
        if self.coalescing is not None and (leader := self.coalescing.leader_for(access.key, spec.terms)) is not None:
            return leader, msgspec.structs.replace(spec, is_coalesced=True)
        if asked is not None and asked.answer is not None and _fits(self._settings, spec, asked.answer):
            return asked.answer, msgspec.structs.replace(spec, similarity=asked.similarity)
        return None, spec

    def begin(self, request: Request, access: CacheAccess, source: Source, asked: Asked | None = None) -> StepRows | None:
        """Take in a request that was accepted. Returns what it has at once; None: it is to be submitted."""
        if isinstance(source, KeptAnswer):
            self._saved.count(request.spec, self._source_of_kept(request.spec, source))
            request.is_at_once = request.is_recorded = access.is_alone
            return _rows_of(request, source)
        if access.may_keep:
            request.answer_key = access.key
        if isinstance(source, Request):
            return None if self.coalescing is None else self.coalescing.join(request, source)
        request.similar_key = None if asked is None else asked.key
        if self.coalescing is not None and access.key:
            self.coalescing.lead(access.key, request)
        return None

    def follow(self, rows: StepRows) -> Sequence[Request]:
        """Add the rows of followers, as `Coalescing.follow` does. Returns the requests that are to be submitted."""
        return _NOTHING if self.coalescing is None else self.coalescing.follow(rows)

    def leave(self, request: Request) -> Sequence[Request]:
        """A request will not be complete: as `Coalescing.leave`. Returns the requests that are to be submitted instead."""
        return _NOTHING if self.coalescing is None else self.coalescing.leave(request)

    def taken(self, sequence: GrowingSequence) -> None:
        """A scheduler has confirmed a sequence, and with it those that follow it: all of their clients may get a status."""
        sequence.request.wake()
        for follower in () if self.coalescing is None else self.coalescing.followers_of(sequence.request):
            follower.sequences[sequence.index].is_taken = True
            follower.wake()

    def over(self, request: Request) -> None:
        """A request is over: its answer may be kept."""
        if request.answer_key:
            self._keep(request)
        if self.similar is not None and request.similar_key is not None:
            self.similar.keep(request)
        if self.coalescing is not None:
            for served in self.coalescing.over(request):
                self._saved.count(served.spec, AnswerSource.COALESCED)

    def directory_up(self) -> None:
        """There is a new cache directory."""
        if self.shared is not None:
            self.shared.directory_up()

    def heard(self, message: AnswersKept) -> None:
        """The cache directory says which answers others keep."""
        if self.shared is not None:
            self.shared.heard(message)

    def _has(self, access: CacheAccess) -> bool:
        return self.kept is not None and self.kept.has(access.key, self._post.wall_s(), access.max_age_s)

    def _kept_answer(self, access: CacheAccess) -> KeptAnswer | None:
        if self.kept is None or self.shared is None:
            return None
        answer = self.kept.find(access.key, self._post.wall_s(), access.max_age_s)
        if answer is not None:
            self.shared.found(access.key)
        return answer

    def _source_of_kept(self, spec: RequestSpec, answer: KeptAnswer) -> AnswerSource:
        if not spec.is_from_cache:
            return AnswerSource.SIMILAR
        is_shared = self.shared is not None and self.shared.is_of_others(answer.key)
        return AnswerSource.SHARED if is_shared else AnswerSource.KEPT

    def _keep(self, request: Request) -> None:
        answer = answer_of(request.answer_key, request, self._post.wall_s())
        if answer is not None and self.kept is not None and self.shared is not None and self.kept.keep(answer):
            self.shared.kept(answer)

    def statistics(self) -> dict[str, float]:
        """For /v1/metrics and `supervisor status`."""
        found = dict[str, float]()
        if self.kept is not None:
            found |= self.kept.statistics(self._post.wall_s())
            found |= {f"answer_hit_p{q}_ms": round(self.hit_s.quantile(q / 100) * 1e3, 3) for q in (50, 99)}
            found |= self._saved.statistics("answer", AnswerSource.KEPT, AnswerSource.SHARED)
            found |= self._saved.statistics("shared", AnswerSource.SHARED)
        if self.similar is not None:
            found |= self._saved.statistics("similar", AnswerSource.SIMILAR)
        if self.coalescing is not None:
            found |= {"coalesced": self.coalescing.n_requests, "coalesced_tokens": self.coalescing.n_tokens}
            found |= {"coalesced_running": len(self.coalescing)}
            found |= self._saved.statistics("coalesced", AnswerSource.COALESCED)
        return found


def _fits(settings: GatewaySettings, spec: RequestSpec, answer: KeptAnswer) -> bool:
    """True if an answer, which was computed for another prompt, has room in the model's context after this one."""
    return len(spec.prompts[0]) // 4 + len(answer.sequences[0].ids) // 4 <= settings.max_length


def _rows_of(request: Request, answer: KeptAnswer) -> StepRows:
    """Give a new request the tokens of a kept answer, as if a scheduler had sent them."""
    rows = StepRows()
    for sequence, kept in zip(request.sequences, answer.sequences, strict=True):
        if sequence.accept(0, np.frombuffer(kept.ids, "<i4").tolist(), n_cached=kept.n_cached):
            rows.add(sequence, 0)
        sequence.end(Ended(reason=kept.reason, n_cached=kept.n_cached))
        rows.ended(sequence)
    return rows
