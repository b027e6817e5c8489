"""What a request may do with the answers of equal ones, those that are kept and those that are being computed."""

from __future__ import annotations

from typing import NamedTuple

from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.answer_cache.fingerprint import fingerprint_of, is_repeatable, wants_logprobs
from actors.gateway.requests.request_spec import RequestSpec
from actors.gateway.settings import GatewaySettings


class CacheAccess(NamedTuple):
    """`key`: of all requests with the same answer; b"": this one has nothing to do with others. `may_find`: it may get the
    answer of an equal one. `may_keep`: answers of its kind are kept."""

    key: bytes = b""
    may_find: bool = False
    may_keep: bool = False


NO_ACCESS = CacheAccess()


def access_of(settings: GatewaySettings, spec: RequestSpec, use: CacheUse, *, has_seed: bool) -> CacheAccess:
    """What a request may do. `has_seed`: it is sampled with its client's own seed.

    Answers with log probabilities are not kept: they are asked for to be measured, and are large.
    """
    if use is CacheUse.NONE or not is_repeatable(spec, has_seed=has_seed):
        return NO_ACCESS
    may_keep = settings.answer_cache != "off" and not wants_logprobs(spec)
    if not (may_keep or settings.answer_coalescing):
        return NO_ACCESS
    return CacheAccess(fingerprint_of(spec), use is CacheUse.FULL, may_keep)
