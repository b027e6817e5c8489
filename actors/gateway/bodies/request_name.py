"""What HTTP or ZeroMQ says of a request beside its body: where it comes from, and the id under which it will be known."""

from __future__ import annotations

import msgspec

from actors.gateway.admission.new_request import Naming
from actors.gateway.answer_cache.cache_use import CacheUse
from actors.gateway.requests.refusal_log import CallTrace
from messages.wire.trace_context import TraceContext


class Origin(msgspec.Struct, frozen=True):
    """Where a call comes from, and under which names others know it. `trace_id`: 16 bytes from `traceparent`, empty without a
    valid one. `caller`: the digest of who has sent it, as `admission/caller.py` makes it. `correlation_id`: X-Request-Id, ""
    without a usable one. `cache_use`: what its Cache-Control says. `is_admin`: it shows an API key for what is the operator's.
    `sees_all`: it shows one for the metrics of all tenants. `allows_fallback`: no header X-No-Fallback forbids it. `trace`:
    what else `traceparent` says; None where traces are off. `began_s`: when the call came, by the monotonic clock; 0 where
    traces are off.
    """

    trace_id: bytes
    caller: bytes
    correlation_id: str = ""
    cache_use: CacheUse = CacheUse.FULL
    is_admin: bool = False
    sees_all: bool = False
    allows_fallback: bool = True
    trace: TraceContext | None = None
    began_s: float = 0.0

    @property
    def call_trace(self) -> CallTrace:
        """What is known for the trace of a call that does not become a request."""
        return CallTrace(self.trace_id, self.trace, self.began_s)


class RequestName(msgspec.Struct, frozen=True):
    """The id of a new request, and what follows from who chose it. The fields are those of `NewRequest`."""

    request: str
    request_field: str
    naming: Naming
    is_resumable: bool
    ends_with_client: bool
    must_be_known: bool
    digest: str
    answer_id: str = ""
