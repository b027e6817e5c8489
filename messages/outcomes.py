"""How a request ends, and why it is refused or fails: one vocabulary for every API, every actor and every client."""

from __future__ import annotations

from typing import Literal

EndReason = Literal[
    "stop",  # a stop token or stop string
    "length",  # max_tokens, or the end of the context
    "cancelled",  # by its client or its gateway
    "failed",  # the server could not finish it; a `Code` says why
    "quarantined",  # workers died while they computed it, again and again
]
FAILURES: frozenset[EndReason] = frozenset(("failed", "quarantined"))

Code = Literal[
    "invalid",  # a field is wrong
    "too_long",  # the prompt, or prompt and max_tokens together, exceed the model's context length
    "too_large",  # more bytes than a request may have
    "too_large_for_memory",  # the prompt, or the rest of an accepted answer, does not fit into the KV memory of a gang
    "not_found",  # no such model, or no such request
    "conflict",  # the id belongs to another request
    "quarantined",  # workers have died while they computed this prompt
    "overloaded",  # too many requests now: retry later
    "unavailable",  # the server does not accept requests now: it starts, drains, or cannot record
    "deadline",  # not finished within the request's own limit or the server's
    "model_changed",  # the server was started again with another model before the request had ended
    "internal",  # a fault of the server
]
NoCode = Literal[""]
