"""When two requests have the same answer: all that decides the tokens of a request, as one key."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from actors.gateway.requests.request_spec import TERMS_WITHOUT_EFFECT, RequestSpec
from messages.generation.terms import Terms

_KEY_BYTES = 16
# Admission has applied the last two to the tokens. Where callers share no answers, the term `cache_scope` names the caller.
_OTHER_TERMS = (*TERMS_WITHOUT_EFFECT, "caller", "bad_words", "truncate_prompt_tokens")
TERMS_OF_THE_ANSWER = tuple(name for name in Terms.__struct_fields__ if name not in _OTHER_TERMS)
_encoder = msgspec.msgpack.Encoder()


def is_repeatable(spec: RequestSpec, *, has_seed: bool) -> bool:
    """True if the same request has the same answer each time: it is greedy, or sampled with the client's own seed."""
    return spec.sampling.temperature == 0.0 or has_seed


def wants_logprobs(spec: RequestSpec) -> bool:
    """True if log probabilities are computed with its tokens, or with its prompts."""
    return spec.sampling.logprobs >= 0 or spec.terms.prompt_logprobs >= 0


def fingerprint_of(spec: RequestSpec, *, is_any_sample: bool = False) -> bytes:
    """16 bytes that are equal for requests with the same tokens whose answers may be shared: model and numerics, prompts,
    sampling, the terms that change an answer, and those that say with whom it is shared (`cache_scope`, `cache_salt`).
    `is_any_sample`: it is sampled without a seed of its client, so that any answer of such a request will do.
    """
    sampling = spec.sampling
    if sampling.temperature == 0.0 or is_any_sample:
        sampling = msgspec.structs.replace(sampling, seed=0)
    terms = [getattr(spec.terms, name) for name in TERMS_OF_THE_ANSWER]
    model = f"{spec.fingerprint}/{spec.model}" if spec.model else spec.fingerprint
    kind = ("any sample",) if is_any_sample else ()
    whole = _encoder.encode((model, spec.prompts, spec.n, sampling, terms, *kind))
    return blake2b(whole, digest_size=_KEY_BYTES).digest()
