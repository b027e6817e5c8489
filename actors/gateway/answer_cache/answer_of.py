"""The answer of a request that is over, as it is kept for equal ones."""

from __future__ import annotations

import numpy as np

from actors.gateway.requests.request import Request
from actors.pages.prompt_start import START_BYTES
from messages.caches.equal import MAX_ANSWER_TOKENS, KeptAnswer, KeptSequence
from messages.outcomes import EndReason

_COMPLETE: tuple[EndReason, ...] = ("stop", "length")


def answer_of(key: bytes, request: Request, now_s: float) -> KeptAnswer | None:
    """The answer; None if a part of it failed or was cancelled, or it is too long. `now_s`: Unix time."""
    if request.n_generated > MAX_ANSWER_TOKENS:
        return None
    sequences = []
    for sequence in request.sequences:
        if sequence.ended is None or sequence.ended.reason not in _COMPLETE:
            return None
        ids = np.array(sequence.ids, "<i4").tobytes()
        sequences.append(KeptSequence(ids=ids, reason=sequence.ended.reason, n_cached=sequence.ended.n_cached))
    spec = request.spec
    return KeptAnswer(
        key=key,
        sequences=tuple(sequences),
        scope=spec.terms.cache_scope,
        starts=tuple(prompt[:START_BYTES] for prompt in spec.prompts),
        began_s=spec.created_s,
        since_s=now_s,
        model=spec.model,
        cache_share=spec.terms.cache_share,
    )
