"""What a request may do with the answers of equal ones, those that are kept and those that are being computed."""

from __future__ import annotations

import math
from typing import NamedTuple

from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.answer_cache.fingerprint import fingerprint_of, is_repeatable, wants_logprobs
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings


class CacheAccess(NamedTuple):
    """`key`: of all requests with the same answer; b"": this one has nothing to do with others. `may_find`: it may get the
    answer of an equal one, of at most `max_age_s`. `may_keep`: answers of its kind are kept. `is_alone`: its client waits for
    the whole answer of this request and no other, and cannot ask for it again: if there is one, it can be sent at once."""

    key: bytes = b""
    may_find: bool = False
    may_keep: bool = False
    max_age_s: float = math.inf
    is_alone: bool = False


NO_ACCESS = CacheAccess()


def access_of(settings: GatewaySettings, spec: RequestSpec, use: CacheUse, *, has_seed: bool) -> CacheAccess:
    """What a request may do. `has_seed`: it is sampled with its client's own seed. One without is computed each time,
    unless the client asks for a kept answer.

    Answers with log probabilities are not kept: they are asked for to be measured, and are large.
    """
    is_any_sample = not is_repeatable(spec, has_seed=has_seed)
    if not use.may_keep or (is_any_sample and not use.is_asked):
        return NO_ACCESS
    may_keep = settings.answer_cache != "off" and not wants_logprobs(spec)
    if not (may_keep or settings.answer_coalescing):
        return NO_ACCESS
    return CacheAccess(fingerprint_of(spec, is_any_sample=is_any_sample), use.may_find, may_keep, use.max_age_s)
