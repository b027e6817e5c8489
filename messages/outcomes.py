"""How a request ends, and why it is refused or fails; and the exit statuses of all programs. One vocabulary for all.

Only the standard library is imported here, because the parent of the supervisor imports this file.
"""

from __future__ import annotations

from enum import IntEnum, unique
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
    "grammar_too_complex",  # the answer's grammar exceeds what can be followed, in the middle of the answer
    "internal",  # a fault of the server
]
NoCode = Literal[""]

FineCode = Literal[  # says more than its `Code`
    "origin_not_allowed",  # a web page of another origin
    "host_not_allowed",  # a name that is not this server's
    "operator_only",  # what only the operator may do
    "invalid_api_key",  # no key, or none of this server
    "method_not_allowed",  # a path without this HTTP method
    "request_timeout",  # headers or body did not come in time
    "headers_too_large",
    "model_not_found",
    "gone",  # a request that is not kept any more
    "idempotency_key_reused",  # with another body
    "caller_harms_workers",  # workers have died of several sequences of this caller
    "queue_full",  # what waits has too many tokens
    "caller_share",  # what this caller has waiting or running, or its connections, are its share
    "shed",  # the server sheds load
    "rate_limit_exceeded",  # a limit of the tenant, for now
    "insufficient_quota",  # the tenant's tokens of this day are used
    "exceeds_limit",  # more than a limit of the tenant ever allows
    "too_many_connections",
    "too_many_bodies",  # bodies of requests fill the memory that is set aside for them
    "journal_unavailable",  # requests cannot be recorded
]
CODE_BY_FINE_CODE: dict[FineCode, Code] = {
    "origin_not_allowed": "invalid",
    "host_not_allowed": "invalid",
    "operator_only": "invalid",
    "invalid_api_key": "invalid",
    "method_not_allowed": "invalid",
    "request_timeout": "invalid",
    "headers_too_large": "too_large",
    "model_not_found": "not_found",
    "gone": "not_found",
    "idempotency_key_reused": "conflict",
    "caller_harms_workers": "overloaded",
    "queue_full": "overloaded",
    "caller_share": "overloaded",
    "shed": "overloaded",
    "rate_limit_exceeded": "overloaded",
    "insufficient_quota": "overloaded",
    "exceeds_limit": "invalid",
    "too_many_connections": "unavailable",
    "too_many_bodies": "unavailable",
    "journal_unavailable": "unavailable",
}


@unique
class ExitCode(IntEnum):
    """The exit status of a program, with what it means: of a server, of its processes, and of the commands.

    A process that was killed by signal N is seen by its parent as -N, and by a shell as 128 + N.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """A member with its number and its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "ended as asked; a command has done what it was asked"
    FAULT = 1, "a bug or a fault of a device; of a command: a stream was lost, a rolling restart stopped half way"
    UNUSABLE = 2, "the command line, the configuration or a file that it names cannot be used: another start fails as well"
    NOT_STARTED = 3, "a process of the server did not become ready; a fault of a drill could not be inflicted in every round"
    BUDGET_SPENT = 4, "the budget for restarts is spent"
    FORCED = 5, "a forced stop, or a process that could not be proven dead"
    NO_SERVER = 6, "a command found no server"
    DEADLINE = 7, "a deadline passed: the journals keep unfinished requests; of a command: what it waits for goes on"
    HAND_OVER = 8, "a supervisor makes room for the next one, which runs the program on disk; only its parent sees this status"
