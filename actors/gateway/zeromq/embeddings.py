"""Embeddings for ZeroMQ clients."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from actors.gateway.admission.body_budget import BodyBudget
from actors.gateway.embeddings.embeddings import Embeddings, EmbeddingSpec, embeddings_for
from actors.gateway.requests.refusals import invalid
from messages import public
from messages.wire.arrays import float32s


async def send_vectors(
    model: Embeddings | None,
    bodies: BodyBudget,
    message: public.EmbeddingsWanted,
    n_bytes: int,
    send: Callable[[public.TextVectors], object],
    caller: bytes,
) -> None:
    """Answer one call. `n_bytes`: of the message, which count against `bodies` meanwhile. `caller`: who asks.
    Raises: Refusal."""
    served = embeddings_for(model, message.model)
    counted = bodies.count(n_bytes, caller=caller)
    try:
        found = await served.embed(_spec_of(message), caller)
    finally:
        bodies.release(counted, caller)
    send(
        public.TextVectors(
            call=message.call,
            model=served.model_name,
            n_texts=len(found.values),
            vectors=float32s(found.values.reshape(-1)),
            n_tokens=found.n_tokens,
        )
    )


def _spec_of(message: public.EmbeddingsWanted) -> EmbeddingSpec:
    """What a ZeroMQ client wants: vectors of texts, or of token ids. Raises: Refusal when its counts do not add up."""
    prompt_name = None if message.prompt_name is msgspec.UNSET else message.prompt_name
    names = {"request": message.call, "api": "zeromq"}
    options = (message.dimensions, message.truncate_prompt_tokens, prompt_name, names)
    if not len(message.counts):
        return EmbeddingSpec("texts", message.texts, None, *options)
    ends = np.cumsum(message.counts)
    if message.texts or message.counts.min() < 0 or ends[-1] != len(message.ids):
        raise invalid("counts", f"numbers of tokens with the sum {len(message.ids)}, without texts", message.counts.tolist())
    return EmbeddingSpec("ids", None, np.split(message.ids, ends[:-1]), *options)
