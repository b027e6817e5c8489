"""What a gateway knows of equal requests: answers that are kept, and requests whose tokens others get as well."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.gateway.answer_cache.access import CacheAccess, access_of
from actors.gateway.answer_cache.answer_cache import AnswerCache, KeptAnswer
from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.lifecycle.coalescing import Coalescing
from actors.gateway.lifecycle.step_rows import StepRows
from actors.gateway.requests.request import GrowingSequence, Request
from actors.gateway.requests.request_spec import Ended, RequestSpec
from actors.gateway.settings import GatewaySettings

Source = KeptAnswer | Request | None  # a kept answer; the request to follow; None: the request is computed
_NOTHING: Sequence[Request] = ()


class EqualRequests:
    """`kept` is None if no answers are kept, `coalescing` if each request is computed that has no kept answer."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        has_cache = settings.answer_cache != "off"
        self.kept = AnswerCache(settings.answer_cache_bytes, settings.answer_cache_ttl_s) if has_cache else None
        self.coalescing = Coalescing() if settings.answer_coalescing else None

    def access(self, spec: RequestSpec, use: CacheUse, *, has_seed: bool) -> CacheAccess:
        """What a request may do here. `has_seed`: it is sampled with its client's own seed."""
        return access_of(self._settings, spec, use, has_seed=has_seed)

    def source_of(self, spec: RequestSpec, access: CacheAccess, now_s: float) -> tuple[Source, RequestSpec]:
        """Where the tokens of a new request come from, and its specification, which says so."""
        if not access.may_find:
            return None, spec
        if access.may_keep and self.kept is not None and (answer := self.kept.find(access.key, now_s)) is not None:
            return answer, msgspec.structs.replace(spec, is_from_cache=True)
        if self.coalescing is not None and (leader := self.coalescing.leader_for(access.key, spec.terms)) is not None:
            return leader, msgspec.structs.replace(spec, is_coalesced=True)
        return None, spec

    def begin(self, request: Request, access: CacheAccess, source: Source) -> StepRows | None:
        """Take in a request that was accepted. Returns what it has at once; None: it is to be submitted."""
        if isinstance(source, KeptAnswer):
            return _rows_of(request, source)
        if access.may_keep:
            request.answer_key = access.key
        if isinstance(source, Request):
            return None if self.coalescing is None else self.coalescing.join(request, source)
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

    def over(self, request: Request, now_s: float) -> None:
        """A request is over: its answer may be kept."""
        if self.kept is not None and request.answer_key:
            self.kept.keep(request.answer_key, request, now_s)
        if self.coalescing is not None:
            self.coalescing.over(request)

    def statistics(self) -> dict[str, float]:
        """For /v1/metrics and `supervisor status`."""
        found = {} if self.kept is None else self.kept.statistics()
        if self.coalescing is not None:
            found |= {"coalesced": self.coalescing.n_requests, "coalesced_tokens": self.coalescing.n_tokens}
        return found


def _rows_of(request: Request, answer: KeptAnswer) -> StepRows:
    """Give a new request the tokens of a kept answer, as if a scheduler had sent them."""
    rows = StepRows()
    for sequence, kept in zip(request.sequences, answer.sequences, strict=True):
        if sequence.accept(0, kept.tokens, n_cached=kept.n_cached):
            rows.add(sequence, 0)
        sequence.end(Ended(reason=kept.reason, n_cached=kept.n_cached))
        rows.ended(sequence)
    return rows
