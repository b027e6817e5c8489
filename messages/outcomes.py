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

FineCode = Literal[  # says more than its `Code`
    "origin_not_allowed",  # a web page of another origin
    "host_not_allowed",  # a name that is not this server's
    "method_not_allowed",  # a path without this HTTP method
    "request_timeout",  # headers or body did not come in time
    "headers_too_large",
    "model_not_found",
    "gone",  # a request that is not kept any more
    "idempotency_key_reused",  # with another body
    "caller_harms_workers",  # workers have died of several sequences of this caller
    "too_many_connections",
    "too_many_bodies",  # bodies of requests fill the memory that is set aside for them
    "journal_unavailable",  # requests cannot be recorded
]
CODE_BY_FINE_CODE: dict[FineCode, Code] = {
    "origin_not_allowed": "invalid",
    "host_not_allowed": "invalid",
    "method_not_allowed": "invalid",
    "request_timeout": "invalid",
    "headers_too_large": "too_large",
    "model_not_found": "not_found",
    "gone": "not_found",
    "idempotency_key_reused": "conflict",
    "caller_harms_workers": "overloaded",
    "too_many_connections": "unavailable",
    "too_many_bodies": "unavailable",
    "journal_unavailable": "unavailable",
}
